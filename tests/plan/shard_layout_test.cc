// The record that travels with a shard (contract section 1).
#include "core/plan/shard_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cpshard {
namespace {

using ::testing::IsEmpty;

// In the body of a TEST, Run is a member function of GoogleTest.
using Runs = std::vector<Run>;

IndexMap MapOf(Runs runs) {
  IndexMap map;
  for (const cpshard::Run& run : runs) map.Append(run);
  return map;
}

// Six source columns on eight padded ones, head and tail chunks for two ranks.
LayoutPlan Layout() {
  LayoutPlan layout;
  layout.rows = 1;
  layout.source_len = 6;
  layout.padded_len = 8;
  layout.placement = {MapOf({{0, 6}, {kFill, 2}})};
  layout.partition = {MapOf({{0, 2}, {6, 2}}), MapOf({{2, 4}})};
  return layout;
}

ShardPlan PlanWith(LayoutPlan layout) {
  ShardPlan plan;
  plan.cp_size = layout.partition.size();
  plan.chunks = {std::move(layout)};
  return plan;
}

TEST(ShardLayout, NamesTheRankTheGroupAndTheBatch) {
  const ShardLayout record = LayoutFor(PlanWith(Layout()), 1, 0xfeed);
  EXPECT_EQ(record.cp_rank, 1);
  EXPECT_EQ(record.cp_size, 2);
  EXPECT_EQ(record.batch_digest, 0xfeedu);
}

TEST(ShardLayout, WithoutAMeshTheGroupIsOneRank) {
  EXPECT_EQ(LayoutFor(ShardPlan(), 0, 7).cp_size, 1);
}

TEST(ShardLayout, HoldsTheRunsOfItsRankOverPaddedColumns) {
  const ShardPlan plan = PlanWith(Layout());
  EXPECT_EQ(LayoutFor(plan, 0, 0).runs, (Runs{{0, 2}, {6, 2}}));
  EXPECT_EQ(LayoutFor(plan, 1, 0).runs, (Runs{{2, 4}}));
}

TEST(ShardLayout, ReportsNothingThatTheLayoutDoesNotReport) {
  const ShardLayout record = LayoutFor(PlanWith(Layout()), 0, 0);
  EXPECT_EQ(record.original_seq_len, std::nullopt);
  EXPECT_EQ(record.padded_seq_len, std::nullopt);
  EXPECT_EQ(record.input_row_shape, std::nullopt);
  EXPECT_EQ(record.input_token_stream_positions, std::nullopt);
  EXPECT_EQ(record.local_token_global_indices, std::nullopt);
}

TEST(ShardLayout, ReportsLengthsAndRowShape) {
  LayoutPlan layout = Layout();
  layout.report.original_seq_len = 6;
  layout.report.padded_seq_len = 8;
  layout.report.input_row_shape = RowShape{2, 3};
  const ShardLayout record = LayoutFor(PlanWith(layout), 0, 0);
  EXPECT_EQ(record.original_seq_len, 6);
  EXPECT_EQ(record.padded_seq_len, 8);
  EXPECT_EQ(record.input_row_shape, (IntArray{{2}, {2, 3}}));
}

TEST(ShardLayout, ReportsTheIndicesOfItsSlots) {
  LayoutPlan layout = Layout();
  layout.report.indices = Report::Indices::kI32;
  EXPECT_EQ(LayoutFor(PlanWith(layout), 0, 0).local_token_global_indices,
            (IntArray{{4}, {0, 1, 6, 7}}));
  layout.report.indices_2d = true;
  EXPECT_EQ(LayoutFor(PlanWith(layout), 1, 0).local_token_global_indices,
            (IntArray{{1, 4}, {2, 3, 4, 5}}));
}

TEST(ShardLayout, StreamPositionsAreThePaddedColumnOfEveryInputToken) {
  LayoutPlan layout = Layout();
  layout.rows = 2;
  layout.source_len = 3;
  layout.padded_len = 4;
  layout.placement = {MapOf({{0, 1}, {kFill, 1}, {2, 1}, {kFill, 1}}),  // drops column 1
                      MapOf({{kFill, 1}, {0, 3}})};
  layout.partition = {IndexMap::Identity(4)};
  layout.report.stream_positions = true;
  EXPECT_EQ(LayoutFor(PlanWith(layout), 0, 0).input_token_stream_positions,
            (IntArray{{2, 3}, {0, -1, 2, 1, 2, 3}}));
}

TEST(ShardLayout, OnePlacementStandsForEveryRow) {
  LayoutPlan layout = Layout();
  layout.rows = 2;
  layout.report.stream_positions = true;
  EXPECT_EQ(LayoutFor(PlanWith(layout), 0, 0).input_token_stream_positions,
            (IntArray{{2, 6}, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}}));
}

TEST(ShardLayout, RanksShareThePositionsAndNothingElse) {
  LayoutPlan layout = Layout();
  layout.report.stream_positions = true;
  layout.report.indices = Report::Indices::kI64;
  const ShardPlan plan = PlanWith(layout);
  LayoutRecords records(plan, 7);
  const ShardLayout second = records.Of(1), first = records.Of(0);
  EXPECT_EQ(&*first.input_token_stream_positions, &*second.input_token_stream_positions);
  EXPECT_EQ(first, LayoutFor(plan, 0, 7));
  EXPECT_EQ(second, LayoutFor(plan, 1, 7));
}

TEST(ShardLayout, ChunksLieOneAfterTheOtherAndReportNoLengths) {
  ShardPlan plan = PlanWith(Layout());
  plan.chunks.front().report.padded_seq_len = 8;
  plan.chunks.push_back(plan.chunks.front());
  const ShardLayout record = LayoutFor(plan, 0, 0);
  EXPECT_EQ(record.runs, (Runs{{0, 2}, {6, 4}, {14, 2}}));
  EXPECT_EQ(record.padded_seq_len, std::nullopt);
}

TEST(ShardLayout, NoChunksMeansNoRuns) {
  ShardPlan plan;
  plan.cp_size = 4;
  const ShardLayout record = LayoutFor(plan, 3, 0);
  EXPECT_THAT(record.runs, IsEmpty());
  EXPECT_EQ(record.cp_rank, 3);
  EXPECT_EQ(record.cp_size, 4);
}

}  // namespace
}  // namespace cpshard
