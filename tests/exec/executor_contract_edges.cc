// The edges of a cut: nothing to do, the ends of a dtype's range - integers wrap, floats round
// (contract 2.3) - and what one task leaves to the next.
#include <gtest/gtest.h>

#include <limits>

#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

using Kind = Move::Kind;

// What one move writes, one element a column.
std::vector<std::byte> RunMove(Executor& executor, DType dtype, const std::vector<double>& source,
                               const Move& move) {
  const std::vector<std::byte> bytes = EncodeAll(dtype, source);
  std::vector<std::byte> dest(move.length * ItemSize(dtype));
  CutTask task;
  task.source = bytes.data();
  task.outer = 1;
  task.column_bytes = ItemSize(dtype);
  task.dtype = dtype;
  task.moves = Share({{move}});
  task.dests = {dest.data()};
  task.dest_strides = {static_cast<int64_t>(dest.size())};
  const Task tasks[] = {task};
  EXPECT_TRUE(executor.Run(tasks).ok());
  return dest;
}

Move Continue(int64_t from, int64_t start, int64_t length) {
  return {Kind::kContinue, 0, 0, from, 0, length, start};
}

TEST_P(ExecutorContract, AContinuedIntegerWraps) {
  EXPECT_EQ(RunMove(*executor_, DType::kI8, {126}, Continue(0, 1, 3)),
            EncodeAll(DType::kI8, {127, -128, -127}));
  EXPECT_EQ(RunMove(*executor_, DType::kU8, {254}, Continue(0, 1, 3)),
            EncodeAll(DType::kU8, {255, 0, 1}));
  EXPECT_EQ(RunMove(*executor_, DType::kI16, {32767}, Continue(0, 1, 1)),
            EncodeAll(DType::kI16, {-32768}));
  EXPECT_EQ(RunMove(*executor_, DType::kI32, {2147483647}, Continue(0, 1, 2)),
            EncodeAll(DType::kI32, {-2147483648.0, -2147483647}));
  EXPECT_EQ(RunMove(*executor_, DType::kI32, {-1}, Continue(0, 1, 2)),
            EncodeAll(DType::kI32, {0, 1}));
}

TEST_P(ExecutorContract, AContinuedInt64WrapsAndKeepsAllItsDigits) {
  const int64_t last = std::numeric_limits<int64_t>::max() - 1;
  int64_t dest[3] = {};
  CutTask task;
  task.source = reinterpret_cast<const std::byte*>(&last);
  task.outer = 1;
  task.column_bytes = 8;
  task.moves = Share({{Continue(0, 1, 3)}});
  task.dests = {reinterpret_cast<std::byte*>(dest)};
  task.dest_strides = {24};
  Execute(task);
  EXPECT_EQ(dest[0], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(dest[1], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(dest[2], std::numeric_limits<int64_t>::min() + 1);
}

TEST_P(ExecutorContract, AContinuedFloatRoundsInItsOwnDType) {
  // f16 has every integer up to 2048, then every second.
  EXPECT_EQ(RunMove(*executor_, DType::kF16, {2047}, Continue(0, 1, 4)),
            EncodeAll(DType::kF16, {2048, 2048, 2050, 2052}));
  // bf16: up to 256. The offset is a bf16 before it is added: 1 + 257 = 1 + 256.
  EXPECT_EQ(RunMove(*executor_, DType::kBF16, {255}, Continue(0, 1, 4)),
            EncodeAll(DType::kBF16, {256, 256, 258, 260}));
  EXPECT_EQ(RunMove(*executor_, DType::kBF16, {1}, Continue(0, 257, 1)),
            EncodeAll(DType::kBF16, {256}));
  EXPECT_EQ(RunMove(*executor_, DType::kF32, {16777215}, Continue(0, 1, 3)),
            EncodeAll(DType::kF32, {16777216, 16777216, 16777218}));
  EXPECT_EQ(RunMove(*executor_, DType::kF64, {0.5}, Continue(0, 1, 2)),
            EncodeAll(DType::kF64, {1.5, 2.5}));
}

TEST_P(ExecutorContract, ARampMayBeginBelowZeroAndRunFar) {
  for (DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kF16, DType::kBF16,
                      DType::kF32, DType::kF64}) {
    EXPECT_EQ(RunMove(*executor_, dtype, {}, {Kind::kRamp, 1, 0, 0, 0, 3, -2}),
              EncodeAll(dtype, {-2, -1, 0}))
        << DTypeName(dtype);
  }
  EXPECT_EQ(RunMove(*executor_, DType::kI64, {}, {Kind::kRamp, 1, 0, 0, 0, 2, int64_t{1} << 40}),
            EncodeAll(DType::kI64, {0x1p40, 0x1p40 + 1}));
}

TEST_P(ExecutorContract, ARampOfBoolsIsTrueWhereItIsNotZero) {
  EXPECT_EQ(RunMove(*executor_, DType::kBool, {}, {Kind::kRamp, 1, 0, 0, 0, 4, -1}),
            EncodeAll(DType::kBool, {1, 0, 1, 1}));
}

TEST_P(ExecutorContract, ALaterTaskReadsWhatAnEarlierOneWrote) {
  const int64_t count = 5000;  // longer than one cache line, longer than a page
  std::vector<int32_t> source(count), middle(count), last(count);
  for (int64_t i = 0; i < count; ++i) source[i] = static_cast<int32_t>(i);
  CutTask reversed;  // two halves change places
  reversed.source = reinterpret_cast<std::byte*>(source.data());
  reversed.outer = 1;
  reversed.column_bytes = 4;
  reversed.dtype = DType::kI32;
  reversed.moves = Share({{{Kind::kCopy, 0, 0, 0, count / 2, count / 2, 0},
                           {Kind::kCopy, 0, 0, count / 2, 0, count / 2, 0}}});
  reversed.dests = {reinterpret_cast<std::byte*>(middle.data())};
  reversed.dest_strides = {count * 4};
  DeriveTask derive;
  derive.source = reversed.dests[0];
  derive.source_dtype = DType::kI32;
  derive.dest = reinterpret_cast<std::byte*>(last.data());
  derive.dest_dtype = DType::kI32;
  derive.count = count;
  derive.op = Op::kBitwiseNot;
  CutTask back = reversed;
  back.source = derive.dest;
  back.dests = {reinterpret_cast<std::byte*>(source.data())};
  ExecuteAll({reversed, derive, back});
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(middle[i], (i + count / 2) % count);
    ASSERT_EQ(last[i], ~middle[i]);
    ASSERT_EQ(source[i], ~i);
  }
}

TEST_P(ExecutorContract, NothingToDoNeedsNoMemory) {
  CutTask task;
  task.moves = Share({{{Kind::kCopy, 0, 0, 0, 0, 0, 0}, {Kind::kFill, 0, 0, 0, 0, 0, 0}}});
  task.dests = {nullptr};
  task.dest_strides = {0};
  task.column_bytes = 8;
  for (int64_t outer : {0, 3}) {
    task.outer = outer;
    Execute(task);
  }
  task.moves = Share({Moves()});
  Execute(task);
  ExecuteAll({});
}

TEST_P(ExecutorContract, ColumnsWithoutBytesAreNotWritten) {
  CutTask task;  // embeddings of width 0
  task.outer = 2;
  task.dests = {nullptr};
  task.dest_strides = {0};
  task.moves = Share({{{Kind::kCopy, 0, 0, 0, 0, 3, 0}, {Kind::kFill, 0, 0, 0, 3, 1, 0}}});
  Execute(task);
}

TEST_P(ExecutorContract, FillRepeatsTheLowBytesOfItsElement) {
  for (DType dtype : kAllDTypes) {
    for (uint64_t bits : {uint64_t{0}, uint64_t{0x0123456789abcdef}, ~uint64_t{0},
                          static_cast<uint64_t>(int64_t{-100})}) {
      for (int64_t length : {0, 1, 2, 3, 15, 16, 17, 100}) {
        const int64_t item = ItemSize(dtype);
        GuardedMemory dest(item, length * item);
        for (int64_t i = 0; i < length; ++i) {
          std::memcpy(dest.expected() + i * item, &bits, item);
        }
        CutTask task;
        task.outer = 1;
        task.column_bytes = item;
        task.dtype = dtype;
        task.fill.bits = bits;
        task.moves = Share({{{Kind::kFill, 0, 0, 0, 0, length, 0}}});
        task.dests = {dest.data()};
        task.dest_strides = {length * item};
        Execute(task);
        ASSERT_TRUE(dest.Matches()) << DTypeName(dtype) << " " << length;
      }
    }
  }
}

}  // namespace
}  // namespace cpshard
