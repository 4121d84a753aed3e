// The stream client against a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tests/client/shard_stream.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(, ShardStreamTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Unix" : "Tcp"; });

TEST_P(ShardStreamTest, ShardsAreThoseOfTheLayoutInProcess) {
  Serve();
  for (const bool checksums : {false, true}) {
    Open({.checksums = checksums});
    std::vector<Batch> batches;
    std::vector<PendingShards> pending;
    // From a few bytes, over ends of chunks, to several chunks.
    for (const int64_t columns : {1, 7, 64, 1000, 43'690, 43'691, 87'381, 200'000}) {
      batches.push_back(TokenBatch(static_cast<int64_t>(batches.size()), columns));
      pending.push_back(Submit(batches.back()));
    }
    for (size_t i = 0; i < batches.size(); ++i) {
      ExpectShards(pending[i].Wait(), batches[i]);
      EXPECT_TRUE(pending[i].done());
    }
    EXPECT_EQ(stream_->stats().batches, static_cast<int64_t>(batches.size()));
    EXPECT_EQ(stream_->stats().connects, 1);
    EXPECT_EQ(stream_->stats().resubmitted, 0);
    EXPECT_GT(stream_->stats().buffers_out, 0);
    pending.clear();
    ExpectNothingHeld();
  }
}

TEST_P(ShardStreamTest, ShardsOutliveTheStream) {
  Serve();
  Open();
  const Batch batch = TokenBatch(1, 1000);
  const PendingShards pending = Submit(batch);
  const absl::StatusOr<ShardResult> shards = pending.Wait();
  stream_.reset();
  ExpectShards(shards, batch);
  ExpectShards(pending.Wait(), batch);
}

TEST_P(ShardStreamTest, ARefusalComesThroughWaitAndLeavesTheOthersAlone) {
  Serve();
  Open();
  const Batch good = TokenBatch(1, 100);
  Batch bad = good;
  bad.tensors.pop_back();
  bad.tensors.pop_back();
  bad.tensors.push_back(TensorOf<int64_t>("labels", DType::kI64, {2, 3}, {1, 2, 3, 4, 5, 6}));
  const PendingShards first = Submit(good), second = Submit(bad), third = Submit(good);
  const PendingShards no_layout = stream_->Submit(good, Options(), kRanks);
  Batch torn = good;
  torn.tensors[0].buffer = torn.tensors[0].buffer.Slice(0, 8);
  const PendingShards local = Submit(torn);
  ExpectShards(first.Wait(), good);
  EXPECT_EQ(second.Wait().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(second.Wait().status().message()), HasSubstr("labels"));
  ExpectShards(third.Wait(), good);
  EXPECT_EQ(no_layout.Wait().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(local.Wait().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->stats().connects, 1);
}

TEST_P(ShardStreamTest, ShardsAreMadeByTheExecutorThatIsAskedForOrNot) {
  Serve({"--executor=cpu"});
  const Batch batch = TokenBatch(1, 1000);
  for (const ExecutorKind executor : {ExecutorKind::kAuto, ExecutorKind::kCpu}) {
    Open({.executor = executor});
    const absl::StatusOr<ShardResult> shards = Submit(batch).Wait();
    ExpectShards(shards, batch);
    EXPECT_EQ(shards->executor, "cpu");
  }
  Open({.executor = ExecutorKind::kCuda});
  const absl::Status refused = Submit(batch).Wait().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cuda"));
  const auto client = Client::Connect(server_->address()).value();
  EXPECT_EQ(client->ShardBatch(batch, RoundRobin(), kRanks, {}, ExecutorKind::kCpu)->executor,
            "cpu");
  EXPECT_EQ(
      client->ShardBatch(batch, RoundRobin(), kRanks, {}, ExecutorKind::kCuda).status().code(),
      absl::StatusCode::kFailedPrecondition);
}

TEST_P(ShardStreamTest, KeepsWithinTheServersLimits) {
  Serve({"--max-inflight-bytes=1000000", "--max-inflight-batches=3"});
  Open({.max_inflight_batches = 100});
  std::vector<Batch> batches;
  std::vector<PendingShards> pending;
  for (int64_t i = 0; i < 60; ++i) {
    batches.push_back(TokenBatch(i, i % 7 == 0 ? 50'000 : 3'000));  // 2.4 MB, 144 KB
    pending.push_back(Submit(batches.back()));
  }
  for (size_t i = 0; i < batches.size(); ++i) ExpectShards(pending[i].Wait(), batches[i]);
  EXPECT_EQ(stream_->stats().resubmitted, 0);  // nothing was refused for them
}

TEST_P(ShardStreamTest, SeveralThreadsShareAStream) {
  Serve();
  Open({.max_inflight_batches = 8});
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int64_t i = 0; i < 25; ++i) {
        const Batch batch = TokenBatch(100 * t + i, 10 + 1000 * (i % 5));
        ExpectShards(Submit(batch).Wait(), batch);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stream_->stats().batches, 100);
  ExpectNothingHeld();
}

TEST_P(ShardStreamTest, ACancelledBatchLetsItsBytesGoAndTheStreamGoesOn) {
  Serve();
  Open({.max_inflight_batches = 2});
  const Batch good = TokenBatch(9, 100);
  for (int round = 0; round < 20; ++round) {
    Watched first(TokenBatch(1, 100'000)), waiting(TokenBatch(2, 100'000));
    std::vector<PendingShards> pending = {Submit(first.batch), Submit(good), Submit(good),
                                          Submit(waiting.batch)};
    absl::SleepFor(absl::Milliseconds(round) / 4);
    pending[0].Cancel();
    pending[3].Cancel();
    for (const size_t i : {0u, 3u}) {
      const absl::StatusOr<ShardResult> shards = pending[i].Wait();
      EXPECT_TRUE(shards.ok() || absl::IsCancelled(shards.status())) << shards.status();
    }
    first.batch = {};
    waiting.batch = {};
    ExpectReleased(first);
    ExpectReleased(waiting);
    ExpectShards(pending[1].Wait(), good);
    ExpectShards(pending[2].Wait(), good);
  }
  EXPECT_EQ(stream_->stats().connects, 1);
  ExpectNothingHeld();
}

TEST(ShardStream, RefusesAnAddressAndLimitsThatCannotBe) {
  const auto code = [](const std::string& address, const StreamOptions& options) {
    return ShardStream::Open(address, options).status().code();
  };
  EXPECT_EQ(code("", {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("unix:/s", {.max_inflight_batches = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("unix:/s", {.deadline = absl::ZeroDuration()}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("unix:/s", {.max_answer_bytes = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("unix:/s", {.max_idle_bytes = -1}), absl::StatusCode::kInvalidArgument);
}

TEST(ShardStream, AUnixPathMayHoldWhatIsSpecialInAUri) {
  char made[] = "/tmp/cpshard-test-XXXXXX";
  const std::string folder = mkdtemp(made);
  ServerProgram server("unix:" + folder + "/a b%20?#");
  server.Start();
  const auto client = Client::Connect(server.address(), {.wait_for_ready = true}).value();
  EXPECT_TRUE(client->GetServerInfo().ok()) << client->GetServerInfo().status();
  const auto stream = ShardStream::Open(server.address()).value();
  const Batch batch = TokenBatch(1, 10);
  ExpectShards(stream->Submit(batch, RoundRobin(), kRanks).Wait(), batch);
  std::system(("rm -rf " + folder).c_str());
}

}  // namespace
}  // namespace cpshard
