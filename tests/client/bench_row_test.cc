// `cpshard bench` must not measure wrong results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "client/cli/bench/row.h"
#include "client/cli/deadline.h"

namespace cpshard::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Options RoundRobin() { return *Options::FromJson(R"({"round_robin": {}})"); }

// A copy with bytes of its own.
ShardResult Copy(const ShardResult& result, BufferPool& pool) {
  ShardResult copy = result;
  for (RankShard& shard : copy.shards) {
    for (Tensor& tensor : shard.batch.tensors) {
      Buffer bytes = *pool.Allocate(tensor.buffer.size());
      std::copy_n(tensor.buffer.data(), tensor.buffer.size(), bytes.data());
      tensor.buffer = bytes;
    }
  }
  return copy;
}

TEST(BenchBatch, IsAtLeastAsLargeAsAskedForAndNeedsNoPadding) {
  for (int64_t cp_size : {1, 4, 7}) {
    for (double bytes : {1e3, 1e6, 16e6}) {
      const TokenShape shape = TokenShape::For(bytes, cp_size);
      EXPECT_EQ(shape.columns % (2 * cp_size), 0);
      EXPECT_GE(static_cast<double>(shape.bytes()), bytes);
      // One step of columns less would be too small.
      EXPECT_LT(static_cast<double>(shape.bytes() - 4 * 2 * cp_size * 25), bytes);
    }
  }
}

TEST(BenchBatch, AllShardsTogetherAreAsLargeAsTheBatch) {
  BufferPool pool;
  const Work work = *MakeWork(10e3, RoundRobin(), 4, pool);
  EXPECT_EQ(work.shape.columns, 104);  // 10,000 / 25 / 4 = 100, in steps of 8
  EXPECT_EQ(work.shape.bytes(), 4 * 104 * 25);
  EXPECT_EQ(work.answer_bytes, 4 * 104 * 25);
  EXPECT_EQ(work.bytes(), 2 * 4 * 104 * 25);
}

TEST(BenchBatch, RotatesOverMoreMemoryThanCachesHold) {
  BufferPool pool;
  const TokenBatches batches = *TokenBatches::Make({.columns = 104}, 1'000'000, pool);
  std::set<const std::byte*> tokens;
  int64_t bytes = 0;
  for (int64_t i = 0; i < batches.size(); ++i) {
    const Batch batch = batches.At(i);
    for (const Tensor& tensor : batch.tensors) {
      bytes += tensor.buffer.size();
      EXPECT_TRUE(tensor.bytes() == batches.At(0).FindTensor(tensor.spec.name)->bytes());
    }
    tokens.insert(batch.FindTensor("input_ids")->buffer.data());
  }
  EXPECT_EQ(tokens.size(), batches.size());
  EXPECT_GE(bytes, 990'000);  // and gaps between streams: 10,400 bytes stand on 10,432
  EXPECT_LE(pool.stats().bytes_out, 1'300'000);
  EXPECT_EQ(batches.At(batches.size()).FindTensor("labels")->buffer.data(),
            batches.At(0).FindTensor("labels")->buffer.data());
}

TEST(BenchBatch, OneThatIsLargerThanThatStandsAlone) {
  BufferPool pool;
  EXPECT_EQ(TokenBatches::Make({.columns = 104}, 1, pool)->size(), 1);
}

// 4 x 104 tokens: three streams of 3,328 bytes, 64 * 52, and one of 416.
TEST(BenchInFlight, IsWhatTheServersLimitsAllow) {
  const TokenShape shape{.columns = 104};
  EXPECT_EQ(InFlight(4, shape, {.max_inflight_bytes = 3 * 10'400}), 3);
  EXPECT_EQ(InFlight(4, shape, {.max_inflight_bytes = 3 * 10'400 - 1}), 2);
  EXPECT_EQ(InFlight(4, shape, {.max_inflight_bytes = 1}), 1);  // one is always taken
  EXPECT_EQ(InFlight(4, shape, {.max_inflight_batches = 2}), 2);
  EXPECT_EQ(InFlight(4, shape, {}), 4);
}

TEST(CommandDeadline, GrowsWithTheBatch) {
  EXPECT_EQ(DeadlineFor(0), absl::Seconds(60));
  EXPECT_EQ(DeadlineFor(2'000'000'000), absl::Seconds(260));
}

TEST(BenchCheck, TheSameAnswerInOtherMemoryIsRight) {
  BufferPool pool;
  const Work work = *MakeWork(10e3, RoundRobin(), 4, pool);
  EXPECT_EQ(DifferenceOf(Copy(work.expected, pool), work.expected), "");
}

TEST(BenchCheck, OneWrongBitIsNamedWithStreamAndRank) {
  BufferPool pool;
  const Work work = *MakeWork(10e3, RoundRobin(), 4, pool);
  ShardResult got = Copy(work.expected, pool);
  const Tensor& labels = *got.shards[2].batch.FindTensor("labels");
  labels.buffer.data()[labels.buffer.size() - 1] ^= std::byte{1};
  EXPECT_THAT(DifferenceOf(got, work.expected), AllOf(HasSubstr("'labels'"), HasSubstr("rank 2")));
}

TEST(BenchCheck, AMissingShardStreamOrLayoutIsADifference) {
  BufferPool pool;
  const Work work = *MakeWork(10e3, RoundRobin(), 4, pool);
  ShardResult got = Copy(work.expected, pool);
  got.shards[1].layout.runs[0].source += 1;
  EXPECT_THAT(DifferenceOf(got, work.expected), HasSubstr("layout of rank 1"));
  got.shards[0].batch.tensors.pop_back();
  EXPECT_THAT(DifferenceOf(got, work.expected), HasSubstr("rank 0"));
  got.shards.pop_back();
  EXPECT_THAT(DifferenceOf(got, work.expected), HasSubstr("3 shards, expected 4"));
}

TEST(BenchPercentile, IsTheSampleThatTheShareDoesNotExceed) {
  std::vector<double> samples(100);
  std::iota(samples.rbegin(), samples.rend(), 1.0);  // 100, 99, ... 1
  EXPECT_EQ(Percentile(samples, 0.50), 50.0);
  EXPECT_EQ(Percentile(samples, 0.99), 99.0);
  EXPECT_EQ(Percentile({7.0}, 0.99), 7.0);
  EXPECT_EQ(Percentile({2.0, 1.0}, 0.50), 1.0);
  EXPECT_EQ(Percentile({2.0, 1.0}, 0.99), 2.0);
}

}  // namespace
}  // namespace cpshard::bench
