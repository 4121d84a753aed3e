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
  // ResourceExhausted: max_waiting are waiting already; Unavailable: closed. Then `work` never
  // runs.
  absl::Status Submit(std::function<void()> work);

  // The same for work that was admitted before and must be done: it is not counted against the
  // bound, which is the caller's to keep. Dropped once closed.
  void Post(std::function<void()> work);

  // Takes no more work, finishes what was taken, joins the threads. Idempotent.
  void Close();

 private:
  void Loop();

  const int64_t max_waiting_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cpshard
