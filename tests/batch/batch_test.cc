#include "core/batch/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/batch/tensors.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename T>
void ExpectReadsItsLimits(DType dtype) {
  const T low = std::numeric_limits<T>::min();
  const T high = std::numeric_limits<T>::max();
  const Tensor tensor = TensorOf<T>("x", dtype, {2, 2}, {low, high, T{1}, T{0}});
  const ValueView ints = ViewValues(tensor);
  EXPECT_THAT(ints.dims(), ElementsAre(2, 2));
  EXPECT_THAT(ints.ToVector(), ElementsAre(low, high, 1, 0)) << DTypeName(dtype);
}

TEST(Batch, ReadsEveryIntegerDTypeWidened) {
  ExpectReadsItsLimits<uint8_t>(DType::kU8);
  ExpectReadsItsLimits<int8_t>(DType::kI8);
  ExpectReadsItsLimits<int16_t>(DType::kI16);
  ExpectReadsItsLimits<int32_t>(DType::kI32);
  ExpectReadsItsLimits<int64_t>(DType::kI64);
}

TEST(Batch, ReadsBoolsAsZeroAndOne) {
  EXPECT_THAT(ViewValues(TensorOf<uint8_t>("x", DType::kBool, {3}, {1, 0, 1})).ToVector(),
              ElementsAre(1, 0, 1));
}

TEST(Batch, ReadsScalarsAndEmptyTensors) {
  EXPECT_THAT(ViewValues(TensorOf<int64_t>("x", DType::kI64, {}, {42})).ToVector(),
              ElementsAre(42));
  const ValueView empty = ViewValues(TensorOf<int64_t>("x", DType::kI64, {0, 7}, {}));
  EXPECT_THAT(empty.ToVector(), IsEmpty());
  EXPECT_THAT(empty.dims(), ElementsAre(0, 7));
}

TEST(Batch, ReadsBytesOfAnyAlignment) {
  std::vector<std::byte> bytes(8 * 3 + 1);
  const int64_t values[] = {-5, int64_t{1} << 40, 7};
  std::memcpy(bytes.data() + 1, values, sizeof values);
  const Tensor tensor{{"x", DType::kI64, {3}}, BufferOf(bytes).Slice(1, sizeof values)};
  EXPECT_THAT(ViewValues(tensor).ToVector(), ElementsAre(-5, int64_t{1} << 40, 7));
}

TEST(Batch, ReadsNumbersOfEveryFloatingDType) {
  EXPECT_EQ(ViewValues(TensorOf<double>("x", DType::kF64, {1}, {0.1})).Number(0), 0.1);
  EXPECT_EQ(ViewValues(TensorOf<float>("x", DType::kF32, {2}, {0, -1.5f})).Number(1), -1.5);
  EXPECT_EQ(ViewValues(TensorOf<uint16_t>("x", DType::kF16, {1}, {0xc000})).Number(0), -2.0);
  EXPECT_EQ(ViewValues(TensorOf<uint16_t>("x", DType::kBF16, {1}, {0x3fc0})).Number(0), 1.5);
}

TEST(Batch, TheSpecIsTheBatchWithoutItsBytes) {
  const Batch batch{{TensorOf<int64_t>("a", DType::kI64, {1, 2}, {1, 2}),
                     TensorOf<float>("b", DType::kF32, {1}, {3.0f})},
                    {{"format", std::string("thd")}}};
  const BatchSpec spec = SpecOf(batch, 4);
  EXPECT_THAT(spec.tensors,
              ElementsAre(TensorSpec{"a", DType::kI64, {1, 2}}, TensorSpec{"b", DType::kF32, {1}}));
  EXPECT_EQ(spec.scalars, batch.scalars);
  EXPECT_EQ(spec.cp_size, 4);
  EXPECT_EQ(SpecOf(batch, std::nullopt).cp_size, std::nullopt);
}

TEST(Batch, FindsTensorsByName) {
  const Batch batch{{TensorOf<int64_t>("a", DType::kI64, {1}, {1})}, {{"b", true}}};
  EXPECT_EQ(batch.FindTensor("a"), &batch.tensors[0]);
  EXPECT_EQ(batch.FindTensor("b"), nullptr);  // a scalar
}

// A layout that needs two streams and reports what it was given.
Sharder Reader() {
  return Sharder(
      {.name = "reader"}, {},
      [](const BatchSpec&, const SharedOptions&, const PlanValues& values) {
        ShardPlan plan;
        for (const auto& [name, ints] : values) {
          plan.notices.push_back({name, std::to_string(ints[0])});
        }
        return absl::StatusOr<ShardPlan>(plan);
      },
      [](const BatchSpec&) {
        return std::vector<std::string>{"seq_lens", "ids"};
      });
}

TEST(PlanBatch, ReadsTheValuesThatTheLayoutNeedsAndNoOthers) {
  const Batch batch{{TensorOf<int32_t>("seq_lens", DType::kI32, {1, 1}, {6}),
                     TensorOf<uint8_t>("ids", DType::kU8, {2}, {200, 1}),
                     TensorOf<float>("pixels", DType::kF32, {1}, {0.5f})},
                    {}};
  const absl::StatusOr<ShardPlan> plan = PlanBatch(Reader(), batch, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->notices, ElementsAre(Notice{"ids", "200"}, Notice{"seq_lens", "6"}));
}

TEST(PlanBatch, LeavesItToTheLayoutToMissAStream) {
  const Batch batch{{TensorOf<int32_t>("seq_lens", DType::kI32, {1, 1}, {6})}, {}};
  const absl::StatusOr<ShardPlan> plan = PlanBatch(Reader(), batch, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->notices, ElementsAre(Notice{"seq_lens", "6"}));
}

// Masks may be floating (contract 4.18 step 6); whether lengths may is for the layout to say.
TEST(PlanBatch, HandsTheLayoutTheValuesOfFloatsToo) {
  const Sharder reader(
      {.name = "reader"}, {},
      [](const BatchSpec&, const SharedOptions&, const PlanValues& values) {
        ShardPlan plan;
        plan.notices.push_back({"mask", std::to_string(values.at("mask").Number(1))});
        return absl::StatusOr<ShardPlan>(plan);
      },
      [](const BatchSpec&) { return std::vector<std::string>{"mask"}; });
  const Batch batch{{TensorOf<float>("mask", DType::kF32, {1, 2}, {6.0f, 0.25f})}, {}};
  const absl::StatusOr<ShardPlan> plan = PlanBatch(reader, batch, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->notices, ElementsAre(Notice{"mask", "0.250000"}));
}

}  // namespace
}  // namespace cpshard
