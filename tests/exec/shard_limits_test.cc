// What the verb "shard" refuses, and that it has taken nothing by then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exec/batches.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

Batch FourteenTokens() { return {{Tokens("input_ids", 1, 14), Tokens("labels", 1, 14)}, {}}; }

class ShardLimits : public ShardTest {
 protected:
  // InvalidArgument with every part in it, and no buffer was ever taken.
  void ExpectRefused(const absl::Status& status, const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    ExpectUntouched();
  }

  void ExpectUntouched() {
    EXPECT_EQ(pool_.stats().buffers_out, 0u);
    EXPECT_EQ(pool_.stats().bytes_out, 0u);
    EXPECT_EQ(pool_.stats().bytes_idle, 0u);
  }
};

TEST_F(ShardLimits, AHugePadMultipleIsRefusedByNameBeforeAnythingIsAllocated) {
  for (int64_t cp_size : {1, 2, 8}) {
    for (int exponent : {28, 31, 40, 61, 62}) {
      const int64_t multiple = int64_t{1} << exponent;
      const Sharder sharder = Contiguous({.pad_multiple = multiple}, {.padding_token_id = 0});
      ExpectRefused(Shard(sharder, FourteenTokens(), cp_size).status(),
                    {"pad_multiple", std::to_string(multiple)});
    }
  }
}

TEST_F(ShardLimits, AHugePadMultipleIsRefusedForOneRankToo) {
  const Sharder sharder = Contiguous({.pad_multiple = int64_t{1} << 62}, {.padding_token_id = 0});
  ExpectRefused(Shard(sharder, FourteenTokens(), 4, {2}).status(), {"pad_multiple"});
}

TEST_F(ShardLimits, TheLimitIsOnTheShardsAskedFor) {
  // Each rank gets three i64 streams of 4 columns: 96 bytes.
  const Limits limits{.max_batch_bytes = 300};
  const Sharder sharder = Contiguous({}, {.padding_token_id = 0});
  EXPECT_TRUE(Shard(sharder, FourteenTokens(), 4, {0, 1, 3}, limits).ok());
  const absl::Status status = Shard(sharder, FourteenTokens(), 4, {}, limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("300"));
}

TEST_F(ShardLimits, ABatchOverTheLimitIsRefusedByStream) {
  ExpectRefused(Shard(RoundRobin({}), FourteenTokens(), 2, {}, {.max_batch_bytes = 223}).status(),
                {"labels", "223"});
}

TEST_F(ShardLimits, RanksOutsideOrTwiceAreRefused) {
  ExpectRefused(Shard(RoundRobin({}), FourteenTokens(), 2, {0, 0}).status(), {"rank 0"});
  ExpectRefused(Shard(RoundRobin({}), FourteenTokens(), 2, {2}).status(), {"rank 2"});
  ExpectRefused(Shard(RoundRobin({}), FourteenTokens(), 0).status(), {"cp_size"});
}

TEST_F(ShardLimits, TheRefusalOfTheLayoutIsHandedOn) {
  ExpectRefused(Shard(RoundRobin({}), {{Tokens("input_ids", 1, 4)}, {}}, 2).status(), {"labels"});
}

TEST_F(ShardLimits, APoolThatIsTooSmallGetsEverythingBack) {
  Batch batch = FourteenTokens();
  batch.tensors.push_back(
      TensorOf("attention_mask", DType::kI64, {1, 14}, std::vector<double>(14, 1.0)));
  size_t refused = 0;
  absl::Status status = absl::UnknownError("not tried");
  for (size_t blocks = 0; blocks < 20 && !status.ok(); ++blocks) {
    BufferPool pool({.max_bytes = blocks * 4096});
    status = ShardBatch(Contiguous({}, {.padding_token_id = 0}), batch, 2, {}, Limits(), *executor_,
                        pool)
                 .status();
    EXPECT_EQ(pool.stats().buffers_out, 0u) << blocks;
    EXPECT_EQ(pool.stats().bytes_out, 0u) << blocks;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    ++refused;
  }
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(refused, 3u);  // with no block, with one rank's, without the derived mask's
}

}  // namespace
}  // namespace cpshard
