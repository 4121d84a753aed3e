// Threads that carry out calls, so that gRPC's own stay free. The queue is bounded and closable.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace cpshard {

// Thread-safe.
class WorkerPool {
 public:
  WorkerPool(int64_t threads, int64_t max_waiting);
  ~WorkerPool();  // Close()

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `work` on one of the threads, in the order of submission.
  // As peers are told them: ResourceExhausted, BUSY: max_waiting are waiting already; Unavailable,
  // DRAINING: closed. Then `work` never runs.
  absl::Status Submit(std::function<void()> work);

  // The same for work that was admitted before and must be done: it does not count against
  // max_waiting, its bound is the caller's to keep. Dropped once closed.
  void Post(std::function<void()> work);

  // Takes no more work, finishes what was taken, joins the threads. Idempotent.
  void Close();

 private:
  void Loop();

  const int64_t max_waiting_;
  absl::Mutex mutex_;
  struct Work {
    std::function<void()> run;
    bool submitted = false;  // not posted
  };
  std::deque<Work> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t submitted_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cpshard
