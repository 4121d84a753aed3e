// A stream under real threads: one sends, one takes, workers shard, a clock expires, and at the end
// the peer goes away in the middle. For the thread sanitizer; what is answered is checked too.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "server/worker_pool.h"
#include "tests/server/stream/stream_peer.h"

namespace cpshard {
namespace {

constexpr char kRoundRobin[] = R"({"round_robin": {}, "padding_token_id": 7})";

struct Rig {
  BufferPool pool;
  const Executors executors{{MakeCpuExecutor(), "as asked for", nullptr}};
  ServerCounters counters;
  MemoryShare shares{int64_t{1} << 30};
  absl::Mutex mu;
  std::shared_ptr<BatchStream> stream;
  WorkerPool workers{2, 64};

  Rig() {
    StreamContext context;
    context.stall = absl::Seconds(30);
    context.executors = &executors;
    context.pool = &pool;
    context.shares = &shares;
    context.counters = &counters;
    context.run_later = [this](std::function<void()> work) { workers.Post(std::move(work)); };
    stream = BatchStream::Make(context, "peer", [] {});
  }
};

void SendTo(BatchStream& stream, const StreamPeer::Out& out) {
  const std::string header = EncodeBatchFrame(out.frame, out.begin, out.body.size());
  const std::vector<Bytes> message = {
      {reinterpret_cast<const std::byte*>(header.data()), header.size()}, out.body};
  stream.OnMessage(message, absl::UnixEpoch());
}

// Frames of a stream as they come out, until `answers` have ended or the time is up.
int64_t TakeAnswers(BatchStream& stream, int64_t answers, int64_t& errors) {
  int64_t taken = 0;
  const absl::Time give_up = absl::Now() + absl::Seconds(60);
  while (taken < answers && absl::Now() < give_up) {
    const std::optional<OutFrame> out = stream.NextFrame(absl::UnixEpoch());
    if (!out) {
      std::this_thread::yield();
      continue;
    }
    std::vector<Bytes> message = {
        {reinterpret_cast<const std::byte*>(out->header.data()), out->header.size()}};
    for (const Buffer& piece : out->body) message.emplace_back(piece.data(), piece.size());
    const ShardFrame frame = DecodeShardFrame(message).value();
    taken += frame.last ? 1 : 0;
    errors += frame.error ? 1 : 0;
  }
  return taken;
}

TEST(BatchStreamThreads, EveryBatchIsAnsweredOnce) {
  Rig rig;
  StreamPeer maker;
  std::mt19937 random(7);
  std::vector<std::vector<StreamPeer::Out>> batches;
  for (uint64_t id = 1; id <= 60; ++id) {
    const Batch batch = maker.MakeBatch(1 + static_cast<int64_t>(random() % 3000), 1);
    batches.push_back(maker.FramesOf(id, batch, kRoundRobin, 2, 4096));
  }
  int64_t errors = 0, taken = 0;
  bool done = false;
  std::thread clock([&] {
    while (true) {
      absl::MutexLock lock(&rig.mu);
      if (done) return;
      rig.stream->Expire(absl::UnixEpoch());
      (void)rig.stream->queued_bytes();
    }
  });
  std::thread taker([&] { taken = TakeAnswers(*rig.stream, 60, errors); });
  for (const auto& frames : batches) {
    while (!rig.stream->WantsInput() || rig.stream->batches() >= 60) std::this_thread::yield();
    for (const StreamPeer::Out& out : frames) SendTo(*rig.stream, out);
  }
  taker.join();
  {
    absl::MutexLock lock(&rig.mu);
    done = true;
  }
  clock.join();
  EXPECT_EQ(taken, 60);
  EXPECT_EQ(errors, 0);
  EXPECT_EQ(rig.pool.stats().buffers_out, 0u);
}

TEST(BatchStreamThreads, NothingIsKeptOfAPeerThatGoesAwayAtAnyMoment) {
  StreamPeer maker;
  std::mt19937 random(11);
  const auto frames = maker.FramesOf(1, maker.MakeBatch(4000), kRoundRobin, 2, 4096);
  for (int round = 0; round < 50; ++round) {
    Rig rig;
    const auto wait = std::chrono::microseconds(random() % 1500);
    std::thread leaver([&] {
      std::this_thread::sleep_for(wait);
      rig.stream->Abandon();
    });
    for (const StreamPeer::Out& out : frames) {
      SendTo(*rig.stream, out);
      (void)rig.stream->NextFrame(absl::UnixEpoch());
    }
    leaver.join();
    rig.workers.Close();
    while (rig.stream->NextFrame(absl::UnixEpoch())) {
    }
    EXPECT_EQ(rig.pool.stats().buffers_out, 0u) << "round " << round;
    EXPECT_EQ(rig.counters.batches, 0);
  }
}

}  // namespace
}  // namespace cpshard
