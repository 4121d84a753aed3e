// Head and tail of every document without padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "tests/plan/generated.h"
#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using Rows = PackedBatch::Rows;
using Columns = std::vector<int64_t>;

PackedBatch Batch(int64_t length, const Rows& real, int64_t cp_size) {
  PackedBatch batch(static_cast<int64_t>(real.size()), length);
  batch.Real(real).Cp(cp_size);
  return batch;
}

ShardPlan PlanOfDocuments(const PackedBatch& batch) {
  absl::StatusOr<ShardPlan> plan = batch.PlanBy(DocumentHeadTail());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ShardPlan();
}

std::vector<Columns> Held(const PackedBatch& batch) {
  std::vector<Columns> held;
  const ShardPlan plan = PlanOfDocuments(batch);
  for (const IndexMap& local : plan.chunks.at(0).partition) held.push_back(local.Expand());
  return held;
}

// What the attention of a rank costs: each token looks at those of its document up to itself.
int64_t CausalArea(const Columns& columns, const Columns& lengths) {
  int64_t area = 0;
  for (int64_t column : columns) {
    for (const int64_t length : lengths) {
      if (column < length) {
        area += column + 1;
        break;
      }
      column -= length;
    }
  }
  return area;
}

// The published example of WLB-LLM's per-document sharding: pieces of (2 1 1 1), (1 2 2 2),
// (1 1 1 1) tokens.
TEST(DocumentHeadTail, OfThreeDocumentsForTwoRanks) {
  const std::vector<Columns> held = Held(Batch(16, {{5, 7, 4}}, 2));
  EXPECT_EQ(held, (std::vector<Columns>{{0, 1, 5, 12, 4, 10, 11, 15}, {2, 6, 7, 13, 3, 8, 9, 14}}));
  EXPECT_EQ(CausalArea(held[0], {5, 7, 4}), 27);
  EXPECT_EQ(CausalArea(held[1], {5, 7, 4}), 26);
}

// Eleven tokens: the left-over one of each document goes to pieces in turn, so shards are uneven.
TEST(DocumentHeadTail, ShardsMayBeUneven) {
  EXPECT_EQ(Held(Batch(11, {{5, 6}}, 2)),
            (std::vector<Columns>{{0, 1, 5, 4, 10}, {2, 6, 7, 3, 8, 9}}));
}

TEST(DocumentHeadTail, ADocumentShorterThanThePiecesLeavesSomeEmpty) {
  EXPECT_EQ(Held(Batch(3, {{1, 2}}, 2)), (std::vector<Columns>{{0}, {1, 2}}));
  EXPECT_EQ(Held(Batch(1, {{1}}, 3)), (std::vector<Columns>{{0}, {}, {}}));
}

TEST(DocumentHeadTail, AnEmptyDocumentMakesNoDifference) {
  EXPECT_EQ(Held(Batch(16, {{0, 5, 0, 7, 4, 0}}, 2)), Held(Batch(16, {{5, 7, 4}}, 2)));
}

TEST(DocumentHeadTail, OfDocumentsThatDivideIsThd) {
  for (const auto& [length, documents, cp_size] :
       std::vector<std::tuple<int64_t, Columns, int64_t>>{
           {8, {8}, 2}, {24, {4, 12, 8}, 2}, {24, {12, 12}, 3}}) {
    const PackedBatch batch = Batch(length, {documents}, cp_size);
    const std::vector<Columns> held = Held(batch);
    const ShardPlan thd = batch.PlanBy(Thd({})).value();
    for (int64_t rank = 0; rank < cp_size; ++rank) {
      Columns columns = thd.chunks[0].partition[rank].Expand(), own = held[rank];
      std::sort(columns.begin(), columns.end());
      std::sort(own.begin(), own.end());
      EXPECT_EQ(own, columns) << cp_size;
    }
  }
}

// Rows are one stream: a document is cut by its columns there.
TEST(DocumentHeadTail, RowsAreOneStream) {
  EXPECT_EQ(Held(Batch(4, {{4}, {1, 3}}, 2)), Held(Batch(8, {{4, 1, 3}}, 2)));
}

// Padded lengths are what is cut, since pads have columns too.
TEST(DocumentHeadTail, PaddedLengthsAreCutWhereTheyAreSent) {
  PackedBatch batch = Batch(12, {{4, 6}}, 2);
  batch.Padded({{5, 7}});
  EXPECT_EQ(Held(batch), Held(Batch(12, {{5, 7}}, 2)));
}

// The tail of a last row that is short is cut as a document, and is padding.
TEST(DocumentHeadTail, AShortLastRowEndsInAPieceOfPadding) {
  const PackedBatch batch = Batch(8, {{5, 2}}, 2);
  EXPECT_EQ(Held(batch), Held(Batch(8, {{5, 2, 1}}, 2)));
  const ShardPlan plan = PlanOfDocuments(batch);
  EXPECT_EQ(WrittenOut(StreamOf(plan, "padding_mask").value),
            (std::vector<Columns>{{0, 0, 0, 0, 0, 0, 0, 1}}));
  EXPECT_EQ(StreamOf(plan, "cu_seqlens").value.from,
            (std::variant<ViewOf, Generated, Literal>(Literal{{0, 5, 7}})));
}

// Those that came in would stand beside others than they go with.
TEST(DocumentHeadTail, BoundariesThatCameInDoNotReachTheRanks) {
  PackedBatch batch = Batch(8, {{5, 3}}, 2);
  batch.Set({"cu_seqlens_padded", DType::kI32, {3}}, {0, 4, 8});
  EXPECT_FALSE(HasStream(PlanOfDocuments(batch), "cu_seqlens_padded"));
  batch.Real({{4, 3}}).Padded({{5, 3}});
  EXPECT_EQ(StreamOf(PlanOfDocuments(batch), "cu_seqlens_padded").value.from,
            (std::variant<ViewOf, Generated, Literal>(Literal{{0, 5, 8}})));
}

TEST(DocumentHeadTail, AsText) {
  PackedBatch batch = Batch(8, {{4, 4}, {8}}, 2);
  batch.Set({"attention_mask", DType::kI64, {2, 8}});
  const ShardPlan plan = PlanOfDocuments(batch);
  EXPECT_EQ(ToString(plan),
            "cp_size 2\n"
            "layout rows 1, source_len 16, padded_len 16\n"
            "  placement 0: 0+16\n"
            "  documents 3, 16 tokens\n"
            "  rank 0: 0+1 4+1 8+2 3+1 7+1 14+2\n"
            "  rank 1: 1+1 5+1 10+2 2+1 6+1 12+2\n"
            "stream input_ids i64 [16] local\n"
            "stream labels i64 [16] local\n"
            "stream position_ids i64 [16] local\n"
            "stream cu_seqlens i32 [4] whole\n"
            "stream max_seqlen i32 [] whole\n"
            "stream padding_mask bool [16] local\n");
  const Report want{
      .padded_seq_len = 16, .input_row_shape = RowShape{2, 8}, .indices = Report::Indices::kI64};
  EXPECT_EQ(plan.chunks[0].report, want);
  EXPECT_EQ(ScalarsOf(plan, 1), (std::vector<ScalarEntry>{{"qkv_format", std::string("thd")},
                                                          {"cp_size", int64_t{2}},
                                                          {"cp_rank", int64_t{1}}}));
}

// Every column once; shards differ by a token at most; within a document a rank's causal work is
// that of a head and a tail.
TEST(DocumentHeadTail, CoversEveryColumnOnceInShardsAsEvenAsTheyCanBe) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t cp_size = 1 + round % 8;
    Columns lengths(1 + random() % 6);
    int64_t total = 0;
    for (int64_t& length : lengths) total += length = random() % 20;
    if (total == 0) continue;
    const std::vector<Columns> held = Held(Batch(total, {lengths}, cp_size));
    ASSERT_EQ(static_cast<int64_t>(held.size()), cp_size);
    std::vector<int> times(total);
    size_t least = total, most = 0;
    for (const Columns& columns : held) {
      for (const int64_t column : columns) ++times[column];
      least = std::min(least, columns.size());
      most = std::max(most, columns.size());
    }
    EXPECT_EQ(times, std::vector<int>(total, 1)) << cp_size;
    EXPECT_LE(most - least, 1u) << cp_size;
  }
}

}  // namespace
}  // namespace cpshard
