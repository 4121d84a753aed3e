// `cpshard bench` must not measure wrong results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "client/cli/bench/row.h"

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
