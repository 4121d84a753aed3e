// What can be asked of a plan: shapes and bytes of its outputs, and its text.
#include "core/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Rows of 6 columns become 8; rank 0 holds 5 of them and rank 1 the other 3.
ShardPlan Uneven(std::vector<StreamPlan> streams) {
  LayoutPlan layout;
  layout.rows = 2;
  layout.source_len = 6;
  layout.padded_len = 8;
  layout.placement.resize(1);
  layout.placement[0].Append({0, 6});
  layout.placement[0].Append({kFill, 2});
  layout.partition.resize(2);
  layout.partition[0].Append({0, 5});
  layout.partition[1].Append({5, 3});
  layout.padded_to = "a multiple of four";
  ShardPlan plan;
  plan.cp_size = 2;
  plan.chunks = {layout};
  plan.streams = std::move(streams);
  return plan;
}

StreamPlan Stream(Extent extent) {
  return {.name = "s", .dtype = DType::kI32, .dims = {2, 6, 3}, .axis = 1, .extent = extent};
}

TEST(Plan, ALocalOutputHasTheRanksOwnLength) {
  const ShardPlan plan = Uneven({Stream(Extent::kLocal)});
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 0), (TensorSpec{"s", DType::kI32, {2, 5, 3}}));
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 1), (TensorSpec{"s", DType::kI32, {2, 3, 3}}));
}

TEST(Plan, APaddedOutputHasThePaddedLengthAndOneAsSentIsUntouched) {
  const ShardPlan plan = Uneven({Stream(Extent::kPadded), Stream(Extent::kAsSent)});
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 1), (TensorSpec{"s", DType::kI32, {2, 8, 3}}));
  EXPECT_EQ(OutputSpec(plan, plan.streams[1], 1), (TensorSpec{"s", DType::kI32, {2, 6, 3}}));
}

TEST(Plan, BytesCountAStreamThatEveryRankHoldsOnce) {
  const std::vector<int64_t> both = {0, 1}, second = {1};
  const auto bytes = [](const ShardPlan& plan, const std::vector<int64_t>& ranks) {
    return CheckedOutputBytes(plan, ranks, {}).value();
  };
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kLocal)}), both), 2 * 8 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kLocal)}), second), 2 * 3 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kPadded)}), both), 2 * 8 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kAsSent)}), both), 2 * 6 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({}), both), 0);
}

TEST(Plan, OutputMayFillTheLimitAndNotPassIt) {
  const std::vector<int64_t> ranks = {0, 1};
  const ShardPlan plan = Uneven({Stream(Extent::kLocal), Stream(Extent::kPadded)});
  EXPECT_TRUE(CheckedOutputBytes(plan, ranks, {.max_batch_bytes = 384}).ok());
  const absl::Status over = CheckedOutputBytes(plan, ranks, {.max_batch_bytes = 383}).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(over.message()), AllOf(HasSubstr("383"), HasSubstr("6"), HasSubstr("8"),
                                                 HasSubstr("a multiple of four")));
}

TEST(Plan, AnOutputBeyondInt64IsOverTheLimit) {
  StreamPlan wide = Stream(Extent::kAsSent);
  wide.dims = {int64_t{1} << 40, int64_t{1} << 40};
  const std::vector<int64_t> ranks = {0};
  EXPECT_EQ(CheckedOutputBytes(Uneven({wide}), ranks, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Plan, APaddedLengthOverTheLimitIsRefusedEvenWhereNoStreamHasIt) {
  ShardPlan plan = Uneven({});
  plan.chunks[0].padded_len = int64_t{1} << 40;
  EXPECT_EQ(CheckedOutputBytes(plan, std::vector<int64_t>{0}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Plan, TextShowsLayoutMapsAndStreams) {
  EXPECT_EQ(ToString(Uneven({Stream(Extent::kLocal), Stream(Extent::kAsSent)})),
            "cp_size 2\n"
            "layout rows 2, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+5\n"
            "  rank 1: 5+3\n"
            "stream s i32 [2, 6, 3] local\n"
            "stream s i32 [2, 6, 3] as_sent\n");
  EXPECT_EQ(ToString(ShardPlan()), "cp_size none\n");
}

}  // namespace
}  // namespace cpshard
