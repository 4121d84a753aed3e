#include "server/worker_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard {

WorkerPool::WorkerPool(int64_t threads, int64_t max_waiting) : max_waiting_(max_waiting) {
  for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkerPool::~WorkerPool() { Close(); }

absl::Status WorkerPool::Submit(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return absl::UnavailableError("the server is shutting down");
  if (static_cast<int64_t>(waiting_.size()) >= max_waiting_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server is busy: ", waiting_.size(), " calls are waiting; try again"));
  }
  waiting_.push_back(std::move(work));
  return absl::OkStatus();
}

void WorkerPool::Post(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (!closed_) waiting_.push_back(std::move(work));
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
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closed_ || !waiting_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (waiting_.empty()) return;  // closed, and nothing left to finish
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace cpshard
