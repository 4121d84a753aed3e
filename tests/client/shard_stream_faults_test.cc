// The stream client against a real server that comes, freezes, dies and comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/client/shard_stream.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

class ShardStreamFaults : public ShardStreamTest {};

INSTANTIATE_TEST_SUITE_P(, ShardStreamFaults, testing::Bool(),
                         [](const auto& info) { return info.param ? "Unix" : "Tcp"; });

TEST_P(ShardStreamFaults, WaitsForAServerThatComesLater) {
  Serve();
  server_->Kill();
  Open();
  const Batch batch = TokenBatch(1, 1000);
  const PendingShards pending = Submit(batch);
  absl::SleepFor(absl::Milliseconds(150));
  EXPECT_FALSE(pending.done());
  server_->Start();
  ExpectShards(pending.Wait(), batch);
}

TEST_P(ShardStreamFaults, AServerThatIsKilledAndComesBackIsSentWhatItDidNotAnswer) {
  Serve();
  Open({.max_inflight_batches = 6, .checksums = true});
  std::vector<Batch> batches;
  std::vector<PendingShards> pending;
  for (int64_t i = 0; i < 30; ++i) {
    batches.push_back(TokenBatch(i, i % 5 == 0 ? 100'000 : 2'000));
    pending.push_back(Submit(batches.back()));
  }
  for (const size_t kill_at : {3u, 9u, 20u}) {
    ASSERT_TRUE(pending[kill_at].Wait().ok()) << pending[kill_at].Wait().status();
    server_->Kill();
    absl::SleepFor(absl::Milliseconds(30));
    server_->Start();
  }
  for (size_t i = 0; i < batches.size(); ++i) ExpectShards(pending[i].Wait(), batches[i]);
  EXPECT_GE(stream_->stats().connects, 2);
  EXPECT_EQ(stream_->stats().batches, 30);
  pending.clear();
  ExpectNothingHeld();
}

TEST_P(ShardStreamFaults, AServerThatIsToldToStopLosesNothing) {
  Serve();
  Open();
  std::vector<Batch> batches;
  std::vector<PendingShards> pending;
  for (int64_t i = 0; i < 20; ++i) {
    batches.push_back(TokenBatch(i, i % 4 == 0 ? 100'000 : 2'000));
    pending.push_back(Submit(batches.back()));
  }
  ASSERT_TRUE(pending[4].Wait().ok()) << pending[4].Wait().status();
  const absl::Time told = absl::Now();
  server_->Terminate();
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_LT(absl::Now() - told, absl::Seconds(5));  // a client that hangs on would cost the grace
  server_->Start();
  for (size_t i = 0; i < batches.size(); ++i) ExpectShards(pending[i].Wait(), batches[i]);
  EXPECT_EQ(stream_->stats().connects, 2);
  pending.clear();
  ExpectNothingHeld();
}

TEST_P(ShardStreamFaults, AnIdleStreamDoesNotHoldUpAServerThatStops) {
  Serve();
  Open();
  const Batch batch = TokenBatch(1, 100);
  ExpectShards(Submit(batch).Wait(), batch);
  const absl::Time told = absl::Now();
  server_->Terminate();
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_LT(absl::Now() - told, absl::Seconds(5));
  server_->Start();
  ExpectShards(Submit(batch).Wait(), batch);
}

TEST_P(ShardStreamFaults, WithoutAServerTheDeadlineEndsABatchAndSaysWhy) {
  Serve();
  server_->Kill();
  Open({.deadline = absl::Milliseconds(300)});
  Watched watched(TokenBatch(1, 1000));
  const absl::Time begin = absl::Now();
  const absl::Status status = Submit(watched.batch).Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server_->address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot connect: UNAVAILABLE"));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(290));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
  watched.batch = {};
  ExpectReleased(watched);
}

TEST_P(ShardStreamFaults, AFrozenServerCannotOutlastTheDeadline) {
  Serve();
  Open({.deadline = absl::Milliseconds(500)});
  const Batch warm = TokenBatch(1, 100);
  ExpectShards(Submit(warm).Wait(), warm);
  server_->Freeze();
  // One that fits into the sockets, and one that gets stuck in the middle.
  const PendingShards small = Submit(warm), large = Submit(TokenBatch(2, 1'000'000));
  EXPECT_EQ(small.Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(small.Wait().status().message()), HasSubstr("sent, not answered"));
  EXPECT_EQ(large.Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(large.Wait().status().message()), HasSubstr("bytes written"));
  server_->Thaw();
  ExpectShards(Submit(warm).Wait(), warm);
  ExpectNothingHeld();
}

TEST_P(ShardStreamFaults, ClosingTheStreamCancelsWhatIsPendingAndLetsGo) {
  Serve();
  Open({.max_inflight_batches = 2});
  ASSERT_TRUE(Submit(TokenBatch(1, 10)).Wait().ok());
  server_->Freeze();
  Watched watched(TokenBatch(1, 500'000));
  std::vector<PendingShards> pending;
  for (int i = 0; i < 3; ++i) pending.push_back(Submit(watched.batch));
  absl::SleepFor(absl::Milliseconds(50));
  const absl::Time begin = absl::Now();
  stream_.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  for (const PendingShards& batch : pending) {
    EXPECT_EQ(batch.Wait().status().code(), absl::StatusCode::kCancelled);
    batch.Cancel();
  }
  watched.batch = {};
  ExpectReleased(watched);
}

TEST_P(ShardStreamFaults, AFrozenServerIsHungUpOnHoweverShortTheDeadline) {
  Serve();
  Open({.deadline = absl::Seconds(1)});
  const Batch small = TokenBatch(1, 100);
  ExpectShards(Submit(small).Wait(), small);
  server_->Freeze();
  Watched stuck(TokenBatch(2, 1'000'000));
  const absl::Time begin = absl::Now();
  EXPECT_EQ(Submit(stuck.batch).Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  stuck.batch = {};
  // Whatever else comes and passes its deadline meanwhile.
  while (!stuck.released() && absl::Now() - begin < absl::Seconds(25)) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(Submit(small).Wait().status()));
  }
  EXPECT_TRUE(stuck.released());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(15));
  server_->Thaw();
  ExpectShards(Submit(small).Wait(), small);
  EXPECT_EQ(stream_->stats().connects, 2);
}

// By chance: kills, stops, freezes, cancels. Every batch ends, shards are right, nothing is left.
TEST_P(ShardStreamFaults, WhateverHappensShardsAreRightAndNothingIsLeft) {
  Serve();
  Open({.deadline = absl::Seconds(30), .max_inflight_batches = 5});
  std::mt19937 random(GetParam());
  const auto chance = [&](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 12; ++round) {
    std::vector<Batch> batches;
    std::vector<PendingShards> pending;
    for (int64_t i = 0; i < 12; ++i) {
      batches.push_back(TokenBatch(100 * round + i, chance(4) == 0 ? 60'000 : 1'000));
      pending.push_back(Submit(batches.back()));
    }
    absl::SleepFor(absl::Milliseconds(chance(20)));
    switch (chance(4)) {
      case 0:
        server_->Kill();
        server_->Start();
        break;
      case 1:
        server_->Terminate();
        server_->Wait();
        server_->Start();
        break;
      case 2:
        server_->Freeze();
        absl::SleepFor(absl::Milliseconds(50));
        server_->Thaw();
        break;
      default:
        for (int i = 0; i < 4; ++i) pending[chance(12)].Cancel();
    }
    for (size_t i = 0; i < batches.size(); ++i) {
      const absl::StatusOr<ShardResult> shards = pending[i].Wait();
      if (!absl::IsCancelled(shards.status())) ExpectShards(shards, batches[i]);
    }
  }
  ExpectNothingHeld();
}

}  // namespace
}  // namespace cpshard
