// DeriveTask: casts, the operations, the diagonal. Expected values are worked out in doubles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Derivation {
  DType from = DType::kI64;
  DType to = DType::kBool;
  std::optional<DType> cast;
  Op op = Op::kNone;
  int64_t operand = 0;
};

// Runs the derivation over `source`, and compares with `expected` and the guards.
testing::AssertionResult Derives(Executor& executor, const Derivation& derivation,
                                 const std::vector<double>& source,
                                 const std::vector<double>& expected, size_t source_offset = 0,
                                 size_t dest_offset = 0) {
  const std::vector<std::byte> from = EncodeAll(derivation.from, source);
  const std::vector<std::byte> to = EncodeAll(derivation.to, expected);
  const SourceMemory memory(source_offset, from.size());
  GuardedMemory dest(dest_offset, to.size());
  if (!from.empty()) {
    std::memcpy(memory.data(), from.data(), from.size());
    std::memcpy(dest.expected(), to.data(), to.size());
  }
  DeriveTask task;
  task.source = memory.data();
  task.source_dtype = derivation.from;
  task.dest = dest.data();
  task.dest_dtype = derivation.to;
  task.count = static_cast<int64_t>(source.size());
  task.cast = derivation.cast;
  task.op = derivation.op;
  task.operand = derivation.operand;
  const Task tasks[] = {task};
  const absl::Status status = executor.Run(tasks);
  if (!status.ok()) return testing::AssertionFailure() << status;
  return dest.Matches() << ", " << DTypeName(derivation.from) << " to " << DTypeName(derivation.to);
}

// What every dtype can tell apart of 0, 1, 2, 100, a few negative and a few broken values.
std::vector<double> ValuesOf(DType dtype) {
  if (dtype == DType::kBool) return {0, 1};
  std::vector<double> values = {0, 1, 2, 3, 100};
  if (!IsUnsigned(dtype)) values.insert(values.end(), {-1, -2, -100});
  if (IsFloating(dtype)) values.insert(values.end(), {-0.0, 0.5, -0.25});
  return values;
}

// `value` as `dtype` holds it. Precondition: in its range.
double CastTo(DType dtype, double value) {
  if (dtype == DType::kBool) return value != 0;
  return IsFloating(dtype) ? value : std::trunc(value) + 0.0;  // an integer has no -0
}

bool Fits(DType dtype, double value) {
  return !(IsUnsigned(dtype) && value < 0) || dtype == DType::kBool;
}

template <typename Fn>
std::vector<double> Map(const std::vector<double>& values, Fn fn) {
  std::vector<double> mapped;
  for (double value : values) mapped.push_back(fn(value));
  return mapped;
}

TEST_P(ExecutorContract, ACastKeepsTheValueAsTheDTypeHoldsIt) {
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      std::vector<double> source;
      for (double value : ValuesOf(from)) {
        if (Fits(to, value)) source.push_back(value);
      }
      const std::vector<double> expected = Map(source, [&](double v) { return CastTo(to, v); });
      EXPECT_TRUE(Derives(*executor_, {from, to}, source, expected));
    }
  }
}

TEST_P(ExecutorContract, TheFirstCastIsToTheDTypeThatItNames) {
  for (DType from : kAllDTypes) {
    for (DType middle : kAllDTypes) {
      std::vector<double> source;
      for (double value : ValuesOf(from)) {
        if (Fits(middle, value)) source.push_back(value);
      }
      const std::vector<double> expected = Map(source, [&](double v) { return CastTo(middle, v); });
      ASSERT_TRUE(Derives(*executor_, {from, DType::kF64, middle}, source, expected))
          << " by way of " << DTypeName(middle);
    }
  }
}

TEST_P(ExecutorContract, TestsSayWhatTheyTest) {
  const struct {
    Op op;
    bool (*holds)(double);
  } tests[] = {{Op::kIsZero, [](double v) { return v == 0; }},
               {Op::kNotZero, [](double v) { return v != 0; }},
               {Op::kNotPositive, [](double v) { return v <= 0; }}};
  for (DType from : kAllDTypes) {
    std::vector<double> source = ValuesOf(from);
    if (IsFloating(from)) source.insert(source.end(), {kNan, kInfinity, -kInfinity});
    for (const auto& test : tests) {
      const std::vector<double> expected =
          Map(source, [&](double v) { return test.holds(v) ? 1.0 : 0.0; });
      for (DType to : kAllDTypes) {
        EXPECT_TRUE(Derives(*executor_, {from, to, std::nullopt, test.op}, source, expected))
            << " op " << static_cast<int>(test.op);
      }
    }
  }
}

TEST_P(ExecutorContract, EqualsComparesValuesNotBits) {
  for (DType from : kAllDTypes) {
    const std::vector<double> source = ValuesOf(from);
    for (int64_t operand : {-100, -1, 0, 1, 2, 100, 156, 255, 65536}) {
      const std::vector<double> expected = Map(source, [&](double v) { return v == operand; });
      EXPECT_TRUE(Derives(*executor_, {from, DType::kBool, std::nullopt, Op::kEquals, operand},
                          source, expected))
          << " == " << operand;
    }
  }
  EXPECT_TRUE(
      Derives(*executor_, {DType::kU8, DType::kBool, std::nullopt, Op::kEquals, -100}, {156}, {0}));
  EXPECT_TRUE(Derives(
      *executor_, {DType::kI64, DType::kBool, std::nullopt, Op::kEquals, (int64_t{1} << 53) + 1},
      {0x1p53}, {0}));
  EXPECT_TRUE(Derives(
      *executor_, {DType::kF32, DType::kBool, std::nullopt, Op::kEquals, (int64_t{1} << 24) + 1},
      {0x1p24}, {0}));
}

TEST_P(ExecutorContract, BitwiseNotTurnsBitsAndLogicalValues) {
  for (DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    const std::vector<double> source = ValuesOf(dtype);
    EXPECT_TRUE(Derives(*executor_, {dtype, dtype, std::nullopt, Op::kBitwiseNot}, source,
                        Map(source, [](double v) { return -v - 1; })));
  }
  EXPECT_TRUE(Derives(*executor_, {DType::kU8, DType::kU8, std::nullopt, Op::kBitwiseNot},
                      {0, 1, 255}, {255, 254, 0}));
  EXPECT_TRUE(Derives(*executor_, {DType::kBool, DType::kBool, std::nullopt, Op::kBitwiseNot},
                      {0, 1}, {1, 0}));
  // A cast to bool first makes it a logical not (contract 4.9).
  EXPECT_TRUE(Derives(*executor_, {DType::kI64, DType::kBool, DType::kBool, Op::kBitwiseNot},
                      {0, 1, 7, -1}, {1, 0, 0, 0}));
}

TEST_P(ExecutorContract, TheCastComesBeforeTheOperation) {
  EXPECT_TRUE(Derives(*executor_, {DType::kF32, DType::kBool, DType::kI64, Op::kIsZero},
                      {0.5, -0.5, 1.5, 0}, {1, 1, 0, 1}));
  EXPECT_TRUE(Derives(*executor_, {DType::kF32, DType::kI32, DType::kBool, Op::kEquals, 1},
                      {0.5, 0, 3}, {1, 0, 1}));
}

TEST_P(ExecutorContract, ACastMakesNoDifferenceToHowLongAStreamMayBe) {
  std::vector<double> source, expected;
  for (int i = 0; i < 3000; ++i) {
    source.push_back(i % 7 + 0.5);
    expected.push_back(i % 7 == 3);
  }
  EXPECT_TRUE(Derives(*executor_, {DType::kF32, DType::kI16, DType::kI64, Op::kEquals, 3}, source,
                      expected, 3, 5));
}

TEST_P(ExecutorContract, ANegativeZeroIsZeroAndNanIsNot) {
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    EXPECT_TRUE(Derives(*executor_, {dtype, DType::kBool, std::nullopt, Op::kNotZero}, {-0.0, kNan},
                        {0, 1}));
    EXPECT_TRUE(Derives(*executor_, {dtype, DType::kBool, std::nullopt, Op::kNotPositive},
                        {-0.0, kNan}, {1, 0}));
  }
}

TEST_P(ExecutorContract, AnyByteOfABoolThatIsNotZeroIsTrue) {
  const uint8_t source[] = {0, 1, 2, 255};
  uint8_t dest[4] = {9, 9, 9, 9};
  DeriveTask task;
  task.source = reinterpret_cast<const std::byte*>(source);
  task.source_dtype = DType::kBool;
  task.dest = reinterpret_cast<std::byte*>(dest);
  task.dest_dtype = DType::kBool;
  task.count = 4;
  Execute(task);
  EXPECT_THAT(dest, testing::ElementsAre(0, 1, 1, 1));
  task.op = Op::kIsZero;
  Execute(task);
  EXPECT_THAT(dest, testing::ElementsAre(1, 0, 0, 0));
}

TEST_P(ExecutorContract, ADerivationWorksAtEveryAlignmentAndLength) {
  for (DType from : kAllDTypes) {
    for (size_t count : {0, 1, 7, 70}) {
      std::vector<double> source, expected;
      for (size_t i = 0; i < count; ++i) {
        source.push_back(i * i % 3 == 0 ? 1 : 0);
        expected.push_back(1 - source.back());
      }
      ForAlignments([&](size_t source_offset, size_t dest_offset) {
        ASSERT_TRUE(Derives(*executor_, {from, DType::kI32, std::nullopt, Op::kIsZero}, source,
                            expected, source_offset, dest_offset));
      });
    }
  }
}

// mask[b, h, q, k] = 1000 b + 100 h + 10 q + k, as an i32; additive ones are read the same way.
TEST_P(ExecutorContract, TheDiagonalIsThatOfHeadZero) {
  const int64_t rows = 3;
  for (int64_t heads : {1, 2}) {
    for (const auto& [queries, keys] :
         {std::pair<int64_t, int64_t>{4, 4}, {3, 5}, {5, 3}, {1, 1}, {300, 301}, {0, 4}, {4, 0}}) {
      std::vector<int32_t> mask;
      for (int64_t at = 0; at < rows * heads * queries * keys; ++at) {
        const int64_t q = at / keys % queries, h = at / keys / queries % heads;
        mask.push_back(static_cast<int32_t>(at / keys / queries / heads * 1000 + h * 100 + q * 10 +
                                            at % keys));
      }
      const int64_t per_row = std::min(queries, keys);
      std::vector<int64_t> dest(rows * per_row, -1), expected;
      for (int64_t i = 0; i < rows * per_row; ++i) {
        expected.push_back(1000 * (i / per_row) + 11 * (i % per_row));
      }
      DeriveTask task;
      task.source = reinterpret_cast<const std::byte*>(mask.data());
      task.source_dtype = DType::kI32;
      task.dest = reinterpret_cast<std::byte*>(dest.data());
      task.dest_dtype = DType::kI64;
      task.count = rows * per_row;
      task.is_diagonal = true;
      task.diagonal = {heads, queries, keys};
      Execute(task);
      EXPECT_EQ(dest, expected) << heads << " heads, " << queries << " x " << keys;
      task.cast = DType::kF64;
      std::fill(dest.begin(), dest.end(), -1);
      Execute(task);
      EXPECT_EQ(dest, expected) << heads << " heads, " << queries << " x " << keys;
    }
  }
}

}  // namespace
}  // namespace cpshard
