// The stream client against a real server that comes, dies and comes back.
#include "client/shard_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "core/exec/shard.h"
#include "tests/batch/tensors.h"
#include "tests/client/server_program.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRanks = 4;

Options RoundRobin() { return Options::FromJson(R"({"round_robin": {}})").value(); }

// [2, columns], every element another one, another one in every batch; about 48 bytes a column.
Batch TokenBatch(int64_t number, int64_t columns) {
  std::vector<int64_t> ids(2 * columns), labels(2 * columns), positions(2 * columns);
  for (int64_t i = 0; i < 2 * columns; ++i) {
    ids[i] = number * 1'000'003 + i;
    labels[i] = -i - number;
    positions[i] = i % columns;
  }
  return {{TensorOf("input_ids", DType::kI64, {2, columns}, ids),
           TensorOf("labels", DType::kI64, {2, columns}, labels),
           TensorOf("position_ids", DType::kI64, {2, columns}, positions)},
          {{"number", number}}};
}

// A handle on batches that tells whether anybody still holds their bytes.
struct Watched {
  Batch batch;
  std::vector<std::weak_ptr<void>> owners;

  explicit Watched(Batch from) : batch(std::move(from)) {
    for (Tensor& tensor : batch.tensors) {
      auto owner = std::make_shared<Buffer>(tensor.buffer);
      owners.push_back(owner);
      tensor.buffer = Buffer(owner, owner->data(), owner->size());
    }
  }

  bool released() const {
    for (const auto& owner : owners) {
      if (!owner.expired()) return false;
    }
    return true;
  }
};

void ExpectReleased(const Watched& watched, absl::Duration patience = absl::Seconds(5)) {
  const absl::Time give_up = absl::Now() + patience;
  while (!watched.released() && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(watched.released());
}

// What the layout makes of the batch without a server.
ShardResult Expected(const Batch& batch) {
  static const std::unique_ptr<Executor> executor = MakeCpuExecutor();
  static BufferPool pool;
  return ShardBatch(RoundRobin().MakeSharder().value(), batch, kRanks, {}, Limits(), *executor,
                    pool)
      .value();
}

void ExpectShards(const absl::StatusOr<ShardResult>& result, const Batch& batch) {
  ASSERT_TRUE(result.ok()) << result.status();
  const ShardResult expected = Expected(batch);
  EXPECT_EQ(result->notices, expected.notices);
  ASSERT_EQ(result->shards.size(), expected.shards.size());
  for (size_t r = 0; r < expected.shards.size(); ++r) {
    const RankShard& got = result->shards[r];
    const RankShard& want = expected.shards[r];
    EXPECT_EQ(got.layout, want.layout);
    EXPECT_EQ(got.cuts, want.cuts);
    EXPECT_EQ(got.batch.scalars, want.batch.scalars);
    ASSERT_EQ(got.batch.tensors.size(), want.batch.tensors.size());
    for (size_t t = 0; t < want.batch.tensors.size(); ++t) {
      EXPECT_EQ(got.batch.tensors[t].spec, want.batch.tensors[t].spec);
      EXPECT_TRUE(got.batch.tensors[t].bytes() == want.batch.tensors[t].bytes())
          << "rank " << r << ", " << want.batch.tensors[t].spec.name;
    }
  }
}

class ShardStreamTest : public testing::TestWithParam<bool> {
 protected:
  ShardStreamTest() {
    char folder[] = "/tmp/cpshard-test-XXXXXX";
    folder_ = mkdtemp(folder);
  }

  ~ShardStreamTest() override {
    if (server_) server_->Kill();
    std::system(("rm -rf " + folder_).c_str());
  }

  void Serve(std::vector<std::string> flags = {}) {
    flags.push_back("--shutdown-seconds=10");
    server_.emplace(
        GetParam() ? ServerProgram::FreeUnixAddress(folder_) : ServerProgram::FreeTcpAddress(),
        std::move(flags));
    server_->Start();
  }

  void Open(const StreamOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<ShardStream>> stream =
        ShardStream::Open(server_->address(), options);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }

  PendingShards Submit(const Batch& batch) { return stream_->Submit(batch, RoundRobin(), kRanks); }

  // Nothing is under way and nobody holds shards: no buffer is left, here or at the server.
  void ExpectNothingHeld() {
    const absl::Time give_up = absl::Now() + absl::Seconds(5);
    while (stream_->stats().buffers_out > 0 && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(1));  // gRPC's thread lets a handle go after the callers
    }
    EXPECT_EQ(stream_->stats().buffers_out, 0);
    const auto client = Client::Connect(server_->address(), {.wait_for_ready = true}).value();
    Counters counters;
    do {
      const absl::StatusOr<ServerInfo> info = client->GetServerInfo();
      ASSERT_TRUE(info.ok()) << info.status();
      counters = info->counters;
    } while ((counters.buffers_out > 0 || counters.batches > 0) && absl::Now() < give_up);
    EXPECT_EQ(counters.buffers_out, 0);
    EXPECT_EQ(counters.batches, 0);
  }

  std::string folder_;
  std::optional<ServerProgram> server_;
  std::unique_ptr<ShardStream> stream_;
};

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

TEST_P(ShardStreamTest, WaitsForAServerThatComesLater) {
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

TEST_P(ShardStreamTest, AServerThatIsKilledAndComesBackIsSentWhatItDidNotAnswer) {
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

TEST_P(ShardStreamTest, AServerThatIsToldToStopLosesNothing) {
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

TEST_P(ShardStreamTest, AnIdleStreamDoesNotHoldUpAServerThatStops) {
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

TEST_P(ShardStreamTest, WithoutAServerTheDeadlineEndsABatchAndSaysWhy) {
  Serve();
  server_->Kill();
  Open({.deadline = absl::Milliseconds(300)});
  const Watched watched(TokenBatch(1, 1000));
  const absl::Time begin = absl::Now();
  std::optional<PendingShards> pending = Submit(watched.batch);
  const absl::Status status = pending->Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server_->address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot connect: UNAVAILABLE"));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(290));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
}

TEST_P(ShardStreamTest, AFrozenServerCannotOutlastTheDeadline) {
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

TEST_P(ShardStreamTest, ClosingTheStreamCancelsWhatIsPendingAndLetsGo) {
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

TEST_P(ShardStreamTest, AStreamThatIsClosedWhileConnectingEndsSoon) {
  Serve();
  server_->Kill();
  Open();
  const PendingShards pending = Submit(TokenBatch(1, 10));
  stream_.reset();
  EXPECT_EQ(pending.Wait().status().code(), absl::StatusCode::kCancelled);
}

// By chance: kills, stops, freezes, cancels. Every batch ends, shards are right, nothing is left.
TEST_P(ShardStreamTest, WhateverHappensShardsAreRightAndNothingIsLeft) {
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

TEST(ShardStream, RefusesAnAddressAndLimitsThatCannotBe) {
  const auto code = [](const std::string& address, const StreamOptions& options) {
    return ShardStream::Open(address, options).status().code();
  };
  EXPECT_EQ(code("", {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("unix:/s", {.max_inflight_batches = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("unix:/s", {.deadline = absl::ZeroDuration()}),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cpshard
