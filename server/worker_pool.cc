#include "server/worker_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/to_peer.h"

namespace cpshard {

WorkerPool::WorkerPool(int64_t threads, int64_t max_waiting) : max_waiting_(max_waiting) {
  for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkerPool::~WorkerPool() { Close(); }

absl::Status WorkerPool::Submit(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (closed_) {
    return WithDetails(absl::UnavailableError("the server is shutting down; try another"),
                       {.reason = "DRAINING", .retry_after = kRetryDrain});
  }
  if (submitted_waiting_ >= max_waiting_) {
    return WithDetails(absl::ResourceExhaustedError(absl::StrCat(
                           "the server is busy: ", submitted_waiting_,
                           " calls are waiting, the most that may (queue); try again")),
                       {.reason = "BUSY", .retry_after = kRetrySoon});
  }
  ++submitted_waiting_;
  waiting_.push_back({std::move(work), true});
  return absl::OkStatus();
}

void WorkerPool::Post(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (!closed_) waiting_.push_back({std::move(work), false});
}

void WorkerPool::Close() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerPool::Loop() {
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closed_ || !waiting_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (waiting_.empty()) return;  // closed, and nothing left to finish
      work = std::move(waiting_.front());
      waiting_.pop_front();
      if (work.submitted) --submitted_waiting_;
    }
    work.run();
  }
}

}  // namespace cpshard
