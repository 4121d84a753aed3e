// The verb "shard" end to end, on batches small enough to write the shards down.
#include "core/exec/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exec/batches.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Batch TokenBatch(int64_t rows, int64_t columns) {
  return {{Tokens("input_ids", rows, columns, DType::kI64, 1),
           Tokens("labels", rows, columns, DType::kI32, 500)},
          {{"step", int64_t{3}}}};
}

TEST_F(ShardTest, RoundRobinGivesHeadAndTailOfEveryRow) {
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), TokenBatch(2, 6), 2);
  ASSERT_THAT(shards, SizeIs(2));
  ExpectTensor(shards[0].batch.FindTensor("input_ids"), DType::kI64, {2, 4},
               {1, 2, 0, 0, 1001, 1002, 0, 0});
  ExpectTensor(shards[1].batch.FindTensor("input_ids"), DType::kI64, {2, 4},
               {3, 4, 5, 6, 1003, 1004, 1005, 1006});
  ExpectTensor(shards[0].batch.FindTensor("labels"), DType::kI32, {2, 4},
               {500, 501, -100, -100, 1500, 1501, -100, -100});
  ExpectTensor(shards[0].batch.FindTensor("position_ids"), DType::kI64, {2, 4},
               {0, 1, 0, 0, 0, 1, 0, 0});
  ExpectTensor(shards[1].batch.FindTensor("position_ids"), DType::kI64, {2, 4},
               {2, 3, 4, 5, 2, 3, 4, 5});
}

TEST_F(ShardTest, ContiguousGivesSlicesAndGoesOnCounting) {
  const std::vector<RankShard> shards =
      ShardsOf(Contiguous({}, {.padding_token_id = 9}), TokenBatch(2, 6), 2);
  ExpectTensor(shards[1].batch.FindTensor("input_ids"), DType::kI64, {2, 4},
               {5, 6, 9, 9, 1005, 1006, 9, 9});
  ExpectTensor(shards[1].batch.FindTensor("position_ids"), DType::kI64, {2, 4},
               {4, 5, 6, 7, 4, 5, 6, 7});
}

TEST_F(ShardTest, AShardCarriesItsLayoutItsCutsAndTheScalars) {
  Batch batch = TokenBatch(1, 6);
  batch.tensors.push_back(Tokens("pixel_values", 3, 2, DType::kF32));
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), batch, 2);
  for (int64_t rank : {0, 1}) {
    const ShardLayout& layout = shards[rank].layout;
    EXPECT_EQ(layout.cp_rank, rank);
    EXPECT_EQ(layout.cp_size, 2);
    EXPECT_EQ(layout.original_seq_len, 6);
    EXPECT_EQ(layout.padded_seq_len, 8);
    EXPECT_EQ(layout.batch_digest, DigestOf(batch));
    EXPECT_EQ(shards[rank].batch.scalars, batch.scalars);
    EXPECT_THAT(shards[rank].cuts,
                ElementsAre(StreamCut{Extent::kLocal, 1}, StreamCut{Extent::kLocal, 1},
                            testing::Field(&StreamCut::extent, Extent::kWhole),
                            StreamCut{Extent::kLocal, 1}));
  }
}

TEST_F(ShardTest, ShardsComeInTheOrderOfTheRanksAskedFor) {
  const absl::StatusOr<ShardResult> result = Shard(RoundRobin({}), TokenBatch(1, 8), 4, {3, 1});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_THAT(result->shards, SizeIs(2));
  EXPECT_EQ(result->shards[0].layout.cp_rank, 3);
  EXPECT_EQ(result->shards[1].layout.cp_rank, 1);
  ExpectTensor(result->shards[0].batch.FindTensor("input_ids"), DType::kI64, {1, 2}, {4, 5});
  ExpectTensor(result->shards[1].batch.FindTensor("input_ids"), DType::kI64, {1, 2}, {2, 7});
}

TEST_F(ShardTest, StreamsAsSentShareTheBytesOfTheBatch) {
  Batch batch = TokenBatch(1, 8);
  batch.tensors.push_back(Tokens("pixel_values", 30, 20, DType::kF32));
  const std::vector<RankShard> identity = ShardsOf(Identity(), batch, 2);
  const std::vector<RankShard> cut = ShardsOf(RoundRobin({}), batch, 2);
  for (int rank : {0, 1}) {
    for (size_t i = 0; i < batch.tensors.size(); ++i) {
      EXPECT_EQ(identity[rank].batch.tensors[i].buffer.data(), batch.tensors[i].buffer.data());
    }
    EXPECT_EQ(cut[rank].batch.FindTensor("pixel_values")->buffer.data(),
              batch.tensors[2].buffer.data());
    EXPECT_NE(cut[rank].batch.FindTensor("input_ids")->buffer.data(),
              batch.tensors[0].buffer.data());
  }
}

TEST_F(ShardTest, StreamsAsSentOutliveTheBatch) {
  std::vector<RankShard> shards;
  {
    const Batch batch = TokenBatch(1, 3);
    shards = ShardsOf(Identity(), batch, 1);
  }
  ExpectTensor(shards[0].batch.FindTensor("input_ids"), DType::kI64, {1, 3}, {1, 2, 3});
}

TEST_F(ShardTest, IdentityTakesNothingFromThePool) {
  const std::vector<RankShard> shards = ShardsOf(Identity(), TokenBatch(4, 100), 8);
  EXPECT_EQ(pool_.stats().buffers_out, 0u);
  EXPECT_EQ(pool_.stats().bytes_idle, 0u);
}

TEST_F(ShardTest, ARanksOwnStreamsLieInOneBlockEachOnItsOwnCacheLine) {
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), TokenBatch(3, 7), 2);
  EXPECT_EQ(pool_.stats().buffers_out, 2u);
  for (const RankShard& shard : shards) {
    for (const Tensor& tensor : shard.batch.tensors) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.buffer.data()) % kBufferAlignment, 0u);
      EXPECT_EQ(static_cast<int64_t>(tensor.buffer.size()), NumBytes(tensor.spec));
    }
  }
}

TEST_F(ShardTest, TheBatchIsNotChanged) {
  const Batch batch = TokenBatch(2, 5);
  const uint64_t before = DigestOf(batch);
  ShardsOf(Contiguous({}, {.padding_token_id = 0}), batch, 3);
  ShardsOf(RoundRobin({}), batch, 3);
  EXPECT_EQ(DigestOf(batch), before);
}

TEST_F(ShardTest, ABatchWithoutRowsGivesShardsWithoutRows) {
  for (const Sharder& sharder : {Contiguous({}, {.padding_token_id = 0}), RoundRobin({})}) {
    for (const RankShard& shard : ShardsOf(sharder, TokenBatch(0, 6), 2)) {
      ExpectTensor(shard.batch.FindTensor("input_ids"), DType::kI64, {0, 4}, {});
      ExpectTensor(shard.batch.FindTensor("position_ids"), DType::kI64, {0, 4}, {});
      EXPECT_EQ(shard.layout.padded_seq_len, 8);
    }
  }
}

TEST_F(ShardTest, ABatchWithoutColumnsGivesShardsWithoutColumns) {
  for (const Sharder& sharder : {Contiguous({}), RoundRobin({})}) {
    for (const RankShard& shard : ShardsOf(sharder, TokenBatch(3, 0), 2)) {
      ExpectTensor(shard.batch.FindTensor("labels"), DType::kI32, {3, 0}, {});
      ExpectTensor(shard.batch.FindTensor("position_ids"), DType::kI64, {3, 0}, {});
      EXPECT_EQ(shard.layout.padded_seq_len, 0);
      EXPECT_THAT(shard.layout.runs, IsEmpty());
    }
  }
}

TEST_F(ShardTest, IdentityOfNothingIsNothing) {
  const std::vector<RankShard> shards = ShardsOf(Identity(), {}, 2);
  ASSERT_THAT(shards, SizeIs(2));
  EXPECT_THAT(shards[1].batch.tensors, IsEmpty());
  EXPECT_EQ(shards[1].layout.padded_seq_len, std::nullopt);
  EXPECT_THAT(shards[1].cuts, IsEmpty());
}

TEST_F(ShardTest, NoticesOfThePlanAreHandedOn) {
  const Sharder sharder({.name = "noticing"}, {},
                        [](const BatchSpec& spec, const SharedOptions&, const PlanValues&) {
                          ShardPlan plan;
                          plan.cp_size = spec.cp_size;
                          plan.notices = {{"slow", "a slower mode"}};
                          return absl::StatusOr<ShardPlan>(plan);
                        });
  const absl::StatusOr<ShardResult> result = Shard(sharder, {}, 2);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->notices, ElementsAre(Notice{"slow", "a slower mode"}));
}

TEST_F(ShardTest, WithoutAMeshOneRankGetsTheBatch) {
  const absl::StatusOr<ShardResult> result =
      ShardBatch(Identity(), TokenBatch(1, 3), std::nullopt, {}, Limits(), *executor_, pool_);
  ASSERT_TRUE(result.ok());
  ASSERT_THAT(result->shards, SizeIs(1));
  EXPECT_EQ(result->shards[0].layout.cp_size, 1);
}

}  // namespace
}  // namespace cpshard
