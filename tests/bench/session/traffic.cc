#include "tests/bench/session/traffic.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/barrier.h"
#include "client/client.h"
#include "client/session/loader.h"
#include "client/session/rank.h"
#include "client/shard_stream.h"
#include "tests/bench/stream/process.h"
#include "tests/bench/stream/token_batch.h"

namespace cpshard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUp = 12;  // more than a session's window
constexpr int64_t kInFlight = 4;
constexpr int64_t kBurst = 5;                           // of steps that a window of 8 has ready
constexpr auto kPause = std::chrono::milliseconds(20);  // in which a loader fills it

double Since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status().ToString());
  return *std::move(value);
}

Options RoundRobinOptions() { return Must(Options::FromJson(R"({"round_robin": {}})")); }

Batch MakeBatch(int64_t bytes) {
  const TokenShape shape = ShapeFor(bytes);
  const Buffer buffer = MakeTokenBatch(shape);
  Batch batch;
  size_t offset = 0;
  for (const TokenStream& stream : kTokenStreams) {
    const size_t size = shape.tokens() * stream.width;
    batch.tensors.push_back(
        {{stream.name, stream.width == 1 ? DType::kBool : DType::kI64, {shape.rows, shape.columns}},
         buffer.Slice(offset, size)});
    offset += size;
  }
  return batch;
}

// Runs `work(i, begin, end)` on threads: everybody warms up, then meets.
double TimeTogether(int64_t threads, const std::function<void(int64_t, int64_t)>& work,
                    int64_t rounds) {
  Clock::time_point begun;
  double seconds = 0;
  auto* warm = new absl::Barrier(static_cast<int>(threads));
  auto* done = new absl::Barrier(static_cast<int>(threads));
  std::vector<std::thread> workers;
  for (int64_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      work(i, kWarmUp);
      const bool frees_warm = warm->Block();
      if (i == 0) begun = Clock::now();
      work(i, rounds);
      const bool frees_done = done->Block();
      if (i == 0) seconds = Since(begun);
      if (frees_warm) delete warm;
      if (frees_done) delete done;
    });
  }
  for (std::thread& worker : workers) worker.join();
  return seconds;
}

class Stateless final : public Traffic {
 public:
  Stateless(const std::string& address, int64_t bytes) : batch_(MakeBatch(bytes)) {
    for (int64_t i = 0; i < kLoaders; ++i) {
      streams_.push_back(Must(ShardStream::Open(address, {.max_inflight_batches = kInFlight})));
    }
  }

  double Seconds(int64_t batches) override {
    return TimeTogether(
        kLoaders, [this](int64_t i, int64_t count) { Run(i, count); }, batches / kLoaders);
  }

 private:
  void Run(int64_t i, int64_t count) {
    std::deque<PendingShards> pending;
    for (int64_t sent = 0; sent < count || !pending.empty();) {
      if (sent < count && static_cast<int64_t>(pending.size()) < kInFlight) {
        pending.push_back(streams_[i]->Submit(batch_, options_, kRanks));
        ++sent;
        continue;
      }
      (void)Must(pending.front().Wait());
      pending.pop_front();
    }
  }

  const Batch batch_;
  const Options options_ = RoundRobinOptions();
  std::vector<std::unique_ptr<ShardStream>> streams_;
};

// The same batch for every step, without an end.
class SameBatch final : public StepSource {
 public:
  explicit SameBatch(Batch batch) : batch_(std::move(batch)) {}
  absl::StatusOr<std::optional<SourceStep>> Make(int64_t, int64_t) override {
    SourceStep step;
    step.microbatches.push_back(batch_);
    return step;
  }
  int64_t EndStep(int64_t) override { return 0; }
  absl::Status Rewind(int64_t, int64_t, const std::optional<LoaderState>&) override {
    return absl::OkStatus();
  }

 private:
  const Batch batch_;
};

class Session final : public Traffic {
 public:
  Session(const std::string& address, int64_t bytes, int64_t ranks, int64_t loaders,
          int64_t prefetch)
      : source_(MakeBatch(bytes)) {
    static int64_t groups = 0;
    const std::string group = absl::StrCat("bench-", ++groups);
    for (int64_t i = 0; i < loaders; ++i) {
      LoaderOptions options;
      options.group = group;
      options.loader = i;
      options.num_loaders = loaders;
      loaders_.push_back(Must(Loader::Start(address, options, {{"train", &source_}})));
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      RankOptions options;
      options.group = group;
      options.cp_size = ranks;
      options.cp_rank = rank;
      options.options = RoundRobinOptions();
      options.prefetch = prefetch;
      options.streams.push_back({"train", 2 * bytes});
      ranks_.push_back(Must(Rank::Open(address, options)));
    }
  }

  double Seconds(int64_t batches) override {
    return TimeTogether(
        static_cast<int64_t>(ranks_.size()),
        [this](int64_t rank, int64_t count) {
          for (int64_t i = 0; i < count; ++i) Next(rank);
        },
        batches);
  }

  void Next(int64_t rank) {
    if (!Must(ranks_[rank]->Next("train")).has_value()) Fail("the data stream has ended");
  }

 private:
  SameBatch source_;
  std::vector<std::unique_ptr<Loader>> loaders_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Bursts, with a pause before each: the first call of one does not count. What a pull gets there
// came during the pause, for a reader asks for the next step when it hands one out; what it gets
// after that it waits for, and it is ready at the server.
double MedianOf(int64_t calls, const std::function<void()>& call) {
  std::vector<double> seconds;
  while (static_cast<int64_t>(seconds.size()) < calls) {
    std::this_thread::sleep_for(kPause);
    call();
    for (int64_t i = 0; i < kBurst; ++i) {
      const Clock::time_point begun = Clock::now();
      call();
      seconds.push_back(Since(begun));
    }
  }
  const auto middle = seconds.begin() + static_cast<int64_t>(seconds.size()) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

class Unary final : public Calls {
 public:
  explicit Unary(const std::string& address) : client_(Must(Client::Connect(address))) {}
  double Median(int64_t calls) override {
    return MedianOf(calls, [this] { (void)Must(client_->GetServerInfo()); });
  }

 private:
  std::unique_ptr<Client> client_;
};

class Pulls final : public Calls {
 public:
  Pulls(const std::string& address, int64_t bytes) : session_(address, bytes, 1, 1, 0) {}
  double Median(int64_t calls) override {
    return MedianOf(calls, [this] { session_.Next(0); });
  }

 private:
  Session session_;
};

}  // namespace

std::unique_ptr<Traffic> StatelessTraffic(const std::string& address, int64_t batch_bytes) {
  return std::make_unique<Stateless>(address, batch_bytes);
}

std::unique_ptr<Traffic> SessionTraffic(const std::string& address, int64_t batch_bytes) {
  return std::make_unique<Session>(address, batch_bytes, kRanks, kLoaders, /*prefetch=*/2);
}

std::unique_ptr<Calls> UnaryCalls(const std::string& address) {
  return std::make_unique<Unary>(address);
}

std::unique_ptr<Calls> ReadyPulls(const std::string& address, int64_t shard_bytes) {
  return std::make_unique<Pulls>(address, shard_bytes);
}

}  // namespace cpshard::bench
