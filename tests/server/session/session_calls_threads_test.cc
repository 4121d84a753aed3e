// Loaders and readers of one group under real threads, without a transport: they come, break off in
// the middle and come again. For the thread sanitizer; that every reader gets every step is
// checked too.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cpshard/v1/options.pb.h"
#include "proto/session_codec.h"
#include "proto/tensor_places.h"
#include "server/session/pull_call.h"
#include "server/session/push_call.h"
#include "server/session/stored_batch.h"
#include "server/worker_pool.h"

namespace cpshard {
namespace {

constexpr int64_t kRanks = 2, kLoaders = 2, kSteps = 600;
constexpr absl::Duration kPatience = absl::Seconds(60);

// What the calls of a server share.
struct Rig {
  BufferPool pool, pool_of_peers;
  const Executors executors{{MakeCpuExecutor(), "as asked for", nullptr}};
  ServerCounters counters;
  StreamContext context;
  std::shared_ptr<SessionHub> hub;
  std::atomic<int64_t> reading = kRanks;  // readers that are not through
  WorkerPool workers{3, 64};

  Rig() {
    context.stall = absl::Seconds(30);
    context.executors = &executors;
    context.pool = &pool;
    context.counters = &counters;
    context.run_later = [this](std::function<void()> work) { workers.Post(std::move(work)); };
    DeliveryOptions options;
    options.instance = "one";
    hub = SessionHub::Make(options, context.run_later);
  }
};

void SendTo(FrameStream& stream, const std::string& header, Bytes body = {}) {
  std::vector<Bytes> message = {{reinterpret_cast<const std::byte*>(header.data()), header.size()}};
  if (!body.empty()) message.push_back(body);
  stream.OnMessage(message, absl::UnixEpoch());
}

// The next message that the stream sends; nullopt: it has none, or has ended.
std::optional<std::vector<std::byte>> TakeFrom(FrameStream& stream) {
  const std::optional<OutFrame> out = stream.NextFrame(absl::UnixEpoch());
  if (!out) return std::nullopt;
  const auto* header = reinterpret_cast<const std::byte*>(out->header.data());
  std::vector<std::byte> message(header, header + out->header.size());
  for (const Buffer& piece : out->body) {
    message.insert(message.end(), piece.data(), piece.data() + piece.size());
  }
  return message;
}

// ids and labels of a step, [2, columns].
Batch BatchOf(int64_t step, BufferPool& pool) {
  Batch batch;
  const int64_t columns = 100 + 400 * (step % 3);
  for (const char* name : {"input_ids", "labels"}) {
    const TensorSpec spec{name, DType::kI64, {2, columns}};
    const Buffer bytes = *pool.Allocate(NumBytes(spec));
    for (int64_t i = 0; i < 2 * columns; ++i) {
      const int64_t value = 100'000 * step + i;
      std::memcpy(bytes.data() + 8 * i, &value, 8);
    }
    batch.tensors.push_back({spec, bytes});
  }
  return batch;
}

// Pushes what it is given credit for, until nobody reads any more; every few batches it breaks off
// in the middle of one.
void Load(Rig& rig, int64_t index) {
  std::mt19937 random(index);
  while (rig.reading > 0) {
    const auto call = PushCall::Make(rig.context, rig.hub, "one", [] {});
    BatchFrame hello;
    hello.hello = LoaderHello{"g", index, kLoaders, 1, 0, {{"train", 0, 0, 0}}};
    SendTo(*call, EncodeBatchFrame(hello, "", 0));
    uint64_t id = 0;
    bool broken = false;
    while (!broken && rig.reading > 0 && !call->Ended()) {
      const auto message = TakeFrom(*call);
      if (!message) {
        std::this_thread::yield();
        continue;
      }
      const LoaderNotice notice = *DecodeLoaderNotice({Bytes(*message)});
      const auto* credit = std::get_if<LoaderCredit>(&notice);
      if (credit == nullptr || credit->at.step >= kSteps) continue;
      const Batch batch = BatchOf(credit->at.step, rig.pool_of_peers);
      BatchBegin begin;
      begin.spec = SpecOf(batch, kRanks);
      begin.places = PlaceTensors(begin.spec, {});
      const int64_t half = AlignUp(NumBytes(begin.spec.tensors[0]));
      begin.total_bytes = begin.places[1].offset + begin.places[1].nbytes;
      BatchFrame frame;
      frame.batch_id = ++id;
      frame.push = PushHead{credit->at, credit->epoch, 0, true};
      std::vector<std::byte> bytes(begin.total_bytes);
      for (int i : {0, 1}) {
        std::memcpy(bytes.data() + begin.places[i].offset, batch.tensors[i].buffer.data(),
                    begin.places[i].nbytes);
      }
      SendTo(*call, EncodeBatchFrame(frame, *EncodePushedBegin(begin), half),
             Bytes(bytes).first(half));
      broken = random() % 8 == 0;
      if (broken) break;
      BatchFrame rest;
      rest.batch_id = id;
      rest.frame_seq = 1;
      rest.offset = half;
      rest.last = true;
      SendTo(*call, EncodeBatchFrame(rest, "", bytes.size() - half), Bytes(bytes).subspan(half));
    }
    call->Abandon();
  }
}

// Asks for steps ahead and takes them in order; every few steps it breaks off.
void Read(Rig& rig, int64_t rank) {
  std::mt19937 random(100 + rank);
  int64_t next = 0;
  const absl::Time give_up = absl::Now() + kPatience;
  while (next < kSteps && absl::Now() < give_up) {
    const auto call = PullCall::Make(rig.context, rig.hub, std::nullopt, [] {});
    SendTo(*call, EncodePullRequest(SessionName{"g", 1, absl::StrCat("r", rank), 1}));
    int64_t asked = next;
    bool broken = false;
    while (!broken && next < kSteps && absl::Now() < give_up && !call->Ended()) {
      while (asked < std::min(next + 3, kSteps)) {
        Want want;
        want.id = asked + 1;
        want.at = {"train", 0, asked++};
        SendTo(*call, EncodePullRequest(want));
      }
      const auto message = TakeFrom(*call);
      if (!message) {
        std::this_thread::yield();
        continue;
      }
      const ShardFrame frame = *DecodeShardFrame({Bytes(*message)}, FrameOf::kSession);
      EXPECT_FALSE(frame.error) << frame.error->status;
      if (frame.error) break;
      if (frame.delivery) {
        EXPECT_EQ(frame.delivery->at.step, next);
        EXPECT_EQ(frame.delivery->digest, DigestOf(BatchOf(next, rig.pool_of_peers)));
      }
      if (!frame.last) continue;
      SendTo(*call, EncodePullRequest(Commit{{"train", 0, next++}}));
      broken = random() % 8 == 0;
    }
    call->Abandon();
  }
  --rig.reading;
  EXPECT_EQ(next, kSteps) << "rank " << rank;
}

void OpenAll(Rig& rig, int64_t ranks) {
  v1::ShardingOptions options = Options::FromJson(R"({"round_robin": {}})")->message();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    OpenSession open;
    open.group = "g";
    open.generation = 1;
    open.cp_size = ranks;
    open.options = options.SerializeAsString();
    open.resume = {{"train", 0}};
    open.reader = absl::StrCat("r", rank);
    open.cp_rank = rank;
    open.incarnation = 1;
    ReaderStream stream;
    stream.name = "train";
    stream.max_step_bytes = MemoryOfStep(1 << 20);
    open.streams = {stream};
    const auto opened =
        rig.hub->Do([&](auto& delivery, absl::Time now) { return delivery.Open(open, now); });
    ASSERT_TRUE(opened.ok()) << opened.status();
  }
}

TEST(SessionCallsThreads, EveryReaderGetsEveryStepWhoeverBreaksOff) {
  Rig rig;
  OpenAll(rig, kRanks);
  std::vector<std::thread> peers;
  for (int64_t i = 0; i < kLoaders; ++i) peers.emplace_back([&rig, i] { Load(rig, i); });
  for (int64_t i = 0; i < kRanks; ++i) peers.emplace_back([&rig, i] { Read(rig, i); });
  for (std::thread& peer : peers) peer.join();
  rig.workers.Close();  // what is left to be done for calls that have gone
  rig.hub->Clear();
  EXPECT_EQ(rig.pool.stats().buffers_out, 0u);
  rig.hub->Close();
}

TEST(PullCall, ADrainingServerDoesNotWaitForAReaderThatThereIsNothingFor) {
  Rig rig;
  OpenAll(rig, 1);
  {
    const auto call = PullCall::Make(rig.context, rig.hub, std::nullopt, [] {});
    SendTo(*call, EncodePullRequest(SessionName{"g", 1, "r0", 1}));
    EXPECT_EQ(call->batches(), 1) << "its trainer may be in a step";
    call->Drain();
    EXPECT_EQ(call->batches(), 0) << "no step is complete";
    call->Abandon();
  }
  rig.workers.Close();
  rig.hub->Clear();
  rig.hub->Close();
}

}  // namespace
}  // namespace cpshard
