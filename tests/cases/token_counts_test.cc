// How many tokens count: over the ranks together as many as in the row.
#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class TokenCounts : public CaseTest {
 protected:
  // Labels that are not -100, rank by rank.
  std::vector<int64_t> Counted(const Sharder& sharder, const Batch& batch, int64_t cp_size) {
    std::vector<int64_t> counts;
    for (const RankShard& shard : ShardsOf(sharder, batch, cp_size)) {
      const std::vector<int64_t> labels = IntsOf(shard, "labels");
      counts.push_back(
          std::count_if(labels.begin(), labels.end(), [](int64_t label) { return label != -100; }));
    }
    return counts;
  }

  int64_t Total(const Sharder& sharder, const Batch& batch, int64_t cp_size) {
    int64_t total = 0;
    for (int64_t count : Counted(sharder, batch, cp_size)) total += count;
    return total;
  }

  // What the batch is said to hold, before it is cut.
  static Totals Said(const Sharder& sharder, const Batch& batch, int64_t cp_size) {
    const absl::StatusOr<ShardPlan> plan = PlanBatch(sharder, batch, cp_size);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? InspectBatch(*plan, SpecOf(batch, cp_size), batch).totals : Totals();
  }
};

// B051
TEST_F(TokenCounts, TheCountsOfTheRanksAddUpToTheCountOfTheRow) {
  EXPECT_EQ(Counted(RoundRobin({}), RowBatch(7), 2), (std::vector<int64_t>{2, 4}));
  const Totals said = Said(RoundRobin({}), RowBatch(7), 2);
  EXPECT_EQ(said.num_label_tokens, 6);
  EXPECT_EQ(said.ranks[0].supervised, 2);
  EXPECT_EQ(said.ranks[1].supervised, 4);
}

// B052
TEST_F(TokenCounts, TheTotalIsTheSameForEveryGroup) {
  for (int64_t cp_size : {2, 4}) {
    EXPECT_EQ(Total(RoundRobin({}), RowBatch(7), cp_size), 6);
    EXPECT_EQ(Said(RoundRobin({}), RowBatch(7), cp_size).num_label_tokens, 6);
  }
}

// B051, B052: every layout, group and dtype; padding never counts.
TEST_F(TokenCounts, NoTokenIsCountedTwiceAndNoneIsMissing) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (int64_t cp_size = 1; cp_size <= 9; ++cp_size) {
      for (int64_t length : {1, 6, 7, 8, 9, 30, 31, 36}) {
        for (DType dtype : {DType::kI8, DType::kI32, DType::kI64}) {
          SCOPED_TRACE(layout.name + " over " + std::to_string(cp_size));
          Values labels = Count(12, length);
          int64_t valid = length;
          for (int64_t i = 0; i < length; i += 3, --valid) labels[i] = -100;
          const Batch batch = With(RowBatch(length), Row("labels", labels, dtype));
          EXPECT_EQ(Total(layout.sharder, batch, cp_size), valid);
          const Totals said = Said(layout.sharder, batch, cp_size);
          EXPECT_EQ(said.num_label_tokens, valid);
          EXPECT_EQ(said.batch.supervised, valid);
          EXPECT_EQ(said.batch.real, length);
        }
      }
    }
  }
}

// B051, B052: packed, whole or in chunks.
TEST_F(TokenCounts, NoPackedTokenIsCountedTwiceAndNoneIsMissing) {
  for (int64_t cp_size : {1, 2, 3, 4}) {
    for (int64_t num_chunks : {1, 2}) {
      const double d = static_cast<double>(2 * cp_size);
      const Rows real = {{d - 1, d}, {1, 2 * d - 1}}, padded = {{d, 2 * d}, {d, 2 * d}};
      Batch batch = PackedBatch(6 * cp_size, real, padded);
      Values labels(2 * 6 * cp_size, -100);
      for (size_t row = 0; row < 2; ++row) {
        double* at = &labels[row * 6 * cp_size];
        std::fill_n(at, static_cast<int64_t>(real[row][0]), 5);
        std::fill_n(at + 2 * cp_size, static_cast<int64_t>(real[row][1]), 5);
      }
      batch = With(batch, TensorOf("labels", DType::kI64, {2, 6 * cp_size}, labels));
      const Sharder sharder = Thd({.num_chunks = num_chunks});
      EXPECT_EQ(Total(sharder, batch, cp_size), 8 * cp_size - 1);
      int64_t unflagged = 0;
      for (const RankShard& shard : ShardsOf(sharder, batch, cp_size)) {
        const std::vector<int64_t> mask = IntsOf(shard, "padding_mask");
        unflagged += std::count(mask.begin(), mask.end(), 0);
      }
      EXPECT_EQ(unflagged, 8 * cp_size - 1);
      const Totals said = Said(sharder, batch, cp_size);
      EXPECT_EQ(said.batch.supervised, 8 * cp_size - 1);
      EXPECT_EQ(said.batch.real, 8 * cp_size - 1);
    }
  }
}

// B054
TEST_F(TokenCounts, ARankWithoutASupervisedTokenGetsItsShard) {
  const Batch batch =
      With(RowBatch(8), Row("labels", {-100, -100, -100, -100, -100, -100, 17, 18}));
  const std::vector<RankShard> shards = ShardsOf(RowLayouts()[0].sharder, batch, 4);
  for (int rank : {0, 1, 2}) ExpectRow(shards[rank], "labels", {-100, -100});
  ExpectRow(shards[3], "labels", {17, 18});
  EXPECT_EQ(Said(RowLayouts()[0].sharder, batch, 4).unsupervised_ranks(),
            (std::vector<int64_t>{0, 1, 2}));
  for (int rank : {0, 1, 2, 3}) {
    ExpectRow(shards[rank], "input_ids", Count(11 + 2 * rank, 2));
    ExpectRow(shards[rank], "position_ids", Count(2 * rank, 2));
  }
}

// B054: no layout skips a rank, though no token at all is supervised.
TEST_F(TokenCounts, RowsWithoutSupervisedTokensAreCutLikeOthers) {
  std::vector<NamedLayout> layouts = AllRowLayouts();
  layouts.push_back({"identity", Identity()});
  for (const NamedLayout& layout : layouts) {
    for (int64_t cp_size : {1, 2, 4, 8}) {
      SCOPED_TRACE(layout.name);
      const Batch batch = With(RowBatch(9), Row("labels", Values(9, -100)));
      const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, cp_size);
      ASSERT_EQ(static_cast<int64_t>(shards.size()), cp_size);
      const TensorSpec& first = shards[0].batch.FindTensor("labels")->spec;
      for (const RankShard& shard : shards) {
        EXPECT_EQ(shard.batch.FindTensor("labels")->spec, first);
      }
    }
  }
  const Batch packed = With(PackedBatch(8, {{0, 4}}, {{4, 4}}), Row("labels", Values(8, -100)));
  for (const RankShard& shard : ShardsOf(Thd({}), packed, 2)) {
    ExpectFlat(shard, "labels", Values(4, -100));
    ExpectDocuments(shard, {0, 4, 8});
  }
}

}  // namespace
}  // namespace cpshard
