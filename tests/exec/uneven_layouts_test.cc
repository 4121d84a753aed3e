// Layouts whose shards differ in length, there and back: explicit and document_head_tail.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "core/exec/gather.h"
#include "tests/exec/batches.h"

namespace cpshard {
namespace {

class UnevenLayouts : public ShardTest {
 protected:
  // What comes back when every rank's part of `name` is put together.
  Tensor Gathered(const std::vector<RankShard>& shards, const std::string& name, bool trim) {
    absl::StatusOr<Tensor> back = GatherStream(shards, name, {.trim = trim}, *executor_, pool_);
    EXPECT_TRUE(back.ok()) << back.status();
    return back.ok() ? *std::move(back) : Tensor();
  }
};

// Columns 0 ... `columns` - 1 in runs of one to three, dealt out to ranks at random.
std::vector<std::vector<Run>> RandomPartition(int64_t columns, int64_t ranks,
                                              std::mt19937& random) {
  std::vector<std::vector<Run>> partition(ranks);
  for (int64_t at = 0; at < columns;) {
    const int64_t length = std::min<int64_t>(1 + random() % 3, columns - at);
    std::vector<Run>& runs = partition[random() % ranks];
    runs.insert(runs.begin() + random() % (runs.size() + 1), Run{at, length});
    at += length;
  }
  return partition;
}

TEST_F(UnevenLayouts, AnExplicitPartitionComesBackAsItWasSent) {
  std::mt19937 random(11);
  for (int64_t cp_size = 1; cp_size <= 8; ++cp_size) {
    const Batch batch{{Tokens("input_ids", 2, 9), Tokens("labels", 2, 9, DType::kI32, 7)}, {}};
    const std::vector<RankShard> shards = ShardsOf(
        Explicit(RandomPartition(11, cp_size, random), {.padding_token_id = 5}), batch, cp_size);
    for (const Tensor& sent : batch.tensors) {
      EXPECT_EQ(BytesOf(Gathered(shards, sent.spec.name, true)), BytesOf(sent)) << cp_size;
    }
    const Tensor padded = Gathered(shards, "input_ids", false);
    ExpectTensor(&padded, DType::kI64, {2, 11},
                 {0,    1,    2,    3,    4,    5,    6,    7,    8,    5, 5,
                  1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 5, 5});
  }
}

// Slot by slot, so that a wrong order inside a shard shows, which a gather would undo.
TEST_F(UnevenLayouts, AnExplicitShardHoldsItsColumnsInTheOrderOfItsRuns) {
  const Batch batch{{Tokens("input_ids", 1, 6), Tokens("labels", 1, 6)}, {}};
  const std::vector<RankShard> shards =
      ShardsOf(Explicit({{{4, 3}, {0, 1}}, {}, {{1, 3}}}, {.padding_token_id = 9}), batch, 3);
  ExpectTensor(shards[0].batch.FindTensor("input_ids"), DType::kI64, {1, 4}, {4, 5, 9, 0});
  ExpectTensor(shards[0].batch.FindTensor("labels"), DType::kI64, {1, 4}, {4, 5, -100, 0});
  ExpectTensor(shards[0].batch.FindTensor("position_ids"), DType::kI64, {1, 4}, {4, 5, 6, 0});
  ExpectTensor(shards[1].batch.FindTensor("input_ids"), DType::kI64, {1, 0}, {});
  ExpectTensor(shards[2].batch.FindTensor("input_ids"), DType::kI64, {1, 3}, {1, 2, 3});
}

TEST_F(UnevenLayouts, DocumentsWithoutPaddingComeBackAsTheyWereSent) {
  std::mt19937 random(5);
  for (int64_t cp_size = 1; cp_size <= 8; ++cp_size) {
    for (int round = 0; round < 5; ++round) {
      std::vector<double> lengths(1 + random() % 5);
      for (double& length : lengths) length = static_cast<double>(random() % 12);
      lengths.push_back(1);
      const int64_t total =
          static_cast<int64_t>(std::accumulate(lengths.begin(), lengths.end(), 0.0));
      const int64_t count = static_cast<int64_t>(lengths.size());
      const Batch batch{{Tokens("input_ids", 1, total), Tokens("labels", 1, total, DType::kI32),
                         Tokens("position_ids", 1, total, DType::kI64, 3),
                         TensorOf("seq_lens", DType::kI64, {1, count}, lengths)},
                        {}};
      const std::vector<RankShard> shards = ShardsOf(DocumentHeadTail(), batch, cp_size);
      for (const char* name : {"input_ids", "labels", "position_ids"}) {
        const Tensor back = Gathered(shards, name, true);
        EXPECT_EQ(back.spec, batch.FindTensor(name)->spec) << cp_size;
        EXPECT_EQ(BytesOf(back), BytesOf(*batch.FindTensor(name))) << cp_size;
      }
    }
  }
}

// Documents of five and six tokens: five slots for one rank and six for the other.
TEST_F(UnevenLayouts, DocumentsWithoutPaddingMakeShardsOfTheirOwnLength) {
  const Batch batch{
      {Tokens("input_ids", 1, 11), Tokens("labels", 1, 11), Tokens("position_ids", 1, 11),
       TensorOf("seq_lens", DType::kI64, {1, 2}, {5, 6})},
      {}};
  const std::vector<RankShard> shards = ShardsOf(DocumentHeadTail(), batch, 2);
  ExpectTensor(shards[0].batch.FindTensor("input_ids"), DType::kI64, {5}, {0, 1, 5, 4, 10});
  ExpectTensor(shards[1].batch.FindTensor("input_ids"), DType::kI64, {6}, {2, 6, 7, 3, 8, 9});
  for (const RankShard& shard : shards) {
    ExpectTensor(shard.batch.FindTensor("cu_seqlens"), DType::kI32, {3}, {0, 5, 11});
    ExpectTensor(shard.batch.FindTensor("max_seqlen"), DType::kI32, {}, {6});
  }
}

}  // namespace
}  // namespace cpshard
