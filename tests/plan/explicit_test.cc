// A partition that is handed in as data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

using Ranks = std::vector<std::vector<Run>>;

const SharedOptions kPadId{.padding_token_id = 9};

BatchSpec Batch(int64_t length, int64_t cp_size, std::vector<TensorSpec> more = {}) {
  BatchSpec spec = TokenBatch(2, length, std::move(more));
  spec.cp_size = cp_size;
  return spec;
}

TEST(Explicit, AsText) {
  const ShardPlan plan = PlanOf(Explicit({{{6, 2}, {0, 1}}, {{1, 5}}}, kPadId), Batch(6, 2));
  EXPECT_EQ(ToString(plan),
            "cp_size 2\n"
            "layout rows 2, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 6+2 0+1\n"
            "  rank 1: 1+5\n"
            "stream input_ids i64 [2, 6] local\n"
            "stream labels i64 [2, 6] local\n"
            "stream position_ids i64 [2, 6] local\n");
}

TEST(Explicit, ReportsTheLengthsAndTheIndices) {
  const ShardPlan plan = PlanOf(Explicit({{{0, 4}}, {{4, 4}}}, kPadId), Batch(6, 2));
  EXPECT_EQ(plan.chunks[0].report,
            (Report{.original_seq_len = 6, .padded_seq_len = 8, .indices = Report::Indices::kI64}));
}

TEST(Explicit, RanksMayHoldAsMuchAsTheyLikeAndNothingToo) {
  const ShardPlan plan = PlanOf(Explicit({{}, {{0, 5}}, {{5, 1}}}, kPadId), Batch(6, 3));
  const StreamPlan ids = StreamOf(plan, "input_ids");
  EXPECT_EQ(OutputSpec(plan, ids, 0).dims, (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(OutputSpec(plan, ids, 1).dims, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(OutputSpec(plan, ids, 2).dims, (std::vector<int64_t>{2, 1}));
}

TEST(Explicit, RunsThatTouchAreOne) {
  const ShardPlan plan = PlanOf(Explicit({{{0, 2}, {2, 2}, {4, 2}}}, kPadId), Batch(6, 1));
  EXPECT_EQ(plan.chunks[0].partition, std::vector<IndexMap>{IndexMap::Identity(6)});
}

// Streams, fills and masks are those of contiguous (contract 4.2); only the columns differ.
TEST(Explicit, OfSlicesIsContiguous) {
  const BatchSpec spec = Batch(6, 2,
                               {{"attention_mask", DType::kI64, {2, 6}},
                                {"loss_mask", DType::kF32, {2, 6}},
                                {"pixel_values", DType::kF32, {5}}});
  ShardPlan want = PlanOf(Contiguous({}, kPadId), spec);
  want.chunks[0].report.indices = Report::Indices::kI64;
  ShardPlan got = PlanOf(Explicit({{{0, 4}}, {{4, 4}}}, kPadId), spec);
  got.chunks[0].padded_to = want.chunks[0].padded_to;  // words for a message
  EXPECT_EQ(got, want) << ToString(got);
}

TEST(Explicit, ABatchWithoutColumnsHasAPartitionOfNothingOrOfPadding) {
  EXPECT_EQ(PlanOf(Explicit({{}, {}}, kPadId), Batch(0, 2)).chunks[0].padded_len, 0);
  EXPECT_EQ(PlanOf(Explicit({{{0, 1}}, {{1, 1}}}, kPadId), Batch(0, 2)).chunks[0].padded_len, 2);
}

TEST(Explicit, ColumnsMayGoToTheEndOfInt64) {
  EXPECT_EQ(
      PlanOf(Explicit({{{0, 1}}, {{1, INT64_MAX - 1}}}, kPadId), Batch(1, 2)).chunks[0].padded_len,
      INT64_MAX);
}

struct Refusal {
  Ranks ranks;
  std::vector<std::string> parts;
};

TEST(Explicit, RefusesWhatIsNoPartitionOfTheRows) {
  constexpr int64_t kMax = INT64_MAX;
  const std::vector<Refusal> refusals = {
      {{}, {"explicit lists 0 ranks", "cp_size 2"}},
      {{{{0, 8}}}, {"explicit lists 1 ranks", "cp_size 2"}},
      {{{{0, 4}}, {{4, 4}}, {}}, {"explicit lists 3 ranks", "cp_size 2"}},
      {{{{0, 3}}, {{3, 2}}}, {"lists 5 columns", "'input_ids' have 6", "list them all"}},
      {{{}, {}}, {"lists 0 columns", "have 6"}},
      {{{{0, 4}}, {{3, 3}}}, {"column 3 is held twice", "rank 1", "begins at 3", "end at 4"}},
      {{{{0, 6}}, {{0, 6}}}, {"column 0 is held twice"}},
      {{{{0, 3}, {0, 3}}, {{3, 3}}}, {"column 0 is held twice", "rank 0"}},
      {{{{0, 3}}, {{4, 3}}}, {"column 3 is held by no rank", "rank 1", "begins at 4"}},
      {{{{1, 3}}, {{4, 3}}}, {"column 0 is held by no rank"}},
      {{{{-1, 3}}, {{0, 6}}}, {"explicit.ranks[0].runs[0]", "source -1", "length 3"}},
      {{{{0, 6}}, {{6, 2}, {-7, 1}}}, {"explicit.ranks[1].runs[1]", "source -7"}},
      {{{{0, 0}}, {{0, 6}}}, {"explicit.ranks[0].runs[0]", "length 0", "one at least"}},
      {{{{0, 6}}, {{6, -1}}}, {"explicit.ranks[1].runs[0]", "length -1"}},
      {{{{0, 6}}, {{6, INT64_MIN}}}, {"explicit.ranks[1].runs[0]", "length -9223372036854775808"}},
      {{{{0, 6}}, {{INT64_MIN, 1}}}, {"source -9223372036854775808"}},
      {{{{0, 6}}, {{kMax, 1}}}, {"explicit.ranks[1].runs[0]", "source 9223372036854775807"}},
      {{{{0, 6}}, {{6, kMax - 5}}}, {"explicit.ranks[1].runs[0]", "length 9223372036854775802"}},
      {{{{0, kMax}}, {{6, kMax - 6}}}, {"column 6 is held twice"}},
      {{{{kMax - 1, 1}}, {{0, 6}}}, {"column 6 is held by no rank", "9223372036854775806"}},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.parts[0]);
    ExpectRefused(Explicit(refusal.ranks, kPadId), Batch(6, 2), refusal.parts);
  }
}

TEST(Explicit, RefusesWhatContiguousRefuses) {
  const Sharder sharder = Explicit({{{0, 4}}, {{4, 4}}});
  ExpectRefused(sharder, Batch(6, 2), {"'input_ids'", "2 padding columns", "padding_token_id"});
  ExpectRefused(sharder, Without(Batch(6, 2), "labels"), {"'labels'", "'loss_mask'"});
  ExpectRefused(sharder, With(Batch(6, 2), {"labels", DType::kI64, {2, 5}}), {"labels", "[2, 5]"});
  BatchSpec no_mesh = Batch(6, 2);
  no_mesh.cp_size.reset();
  ExpectRefused(sharder, no_mesh, {"explicit", "needs a mesh"});
}

}  // namespace
}  // namespace cpshard
