// The batches in flight of one row of the benchmark.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/cli/bench/row.h"
#include "client/shard_stream.h"

namespace cpshard::bench {

// Submits `work`'s batches in turn and waits for them in order. Stop may be called from another
// thread.
class Window {
 public:
  Window(ShardStream& stream, const Work& work) : stream_(stream), work_(work) {}

  void Submit();

  // Waits for the oldest batch. Precondition: size() > 0. Cancelled: after Stop.
  absl::StatusOr<ShardResult> Next();

  // Nothing more is waited for.
  void Stop();

  int64_t size() const { return static_cast<int64_t>(flying_.size()); }

  // Seconds from Submit to the shards, of the batches since the last call.
  std::vector<double> TakeLatencies() { return std::exchange(latencies_, {}); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Flying {
    Clock::time_point begin;
    PendingShards shards;
  };

  ShardStream& stream_;
  const Work& work_;
  int64_t submitted_ = 0;
  std::deque<Flying> flying_;
  std::vector<double> latencies_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<PendingShards> awaited_ ABSL_GUARDED_BY(mutex_);
};

// Stops a window as soon as its server, a child of this process, has ended: the stream itself would
// look for the server until the batches' deadline.
class ServerWatch {
 public:
  ServerWatch(Window& window, pid_t server);
  ~ServerWatch();

 private:
  void Run();

  Window& window_;
  const int server_;  // pidfd; -1: the kernel has none
  const int over_;    // eventfd
  std::thread thread_;
};

}  // namespace cpshard::bench
