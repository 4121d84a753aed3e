#include "core/exec/executor_set.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cpshard {
namespace {

class ExecutorSet : public Executor {
 public:
  explicit ExecutorSet(std::vector<std::unique_ptr<Executor>> executors)
      : name_(executors.front()->name()), executors_(std::move(executors)) {
    for (const auto& executor : executors_) free_.push_back(executor.get());
  }

  absl::Status Run(absl::Span<const Task> tasks) override {
    Executor* executor = Take();
    const absl::Status status = executor->Run(tasks);
    absl::MutexLock lock(&mutex_);
    free_.push_back(executor);
    return status;
  }

  absl::string_view name() const override { return name_; }

 private:
  // The one that was used last: its memory is the most likely to be warm.
  Executor* Take() {
    absl::MutexLock lock(&mutex_);
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !free_.empty(); };
    mutex_.Await(absl::Condition(&any));
    Executor* executor = free_.back();
    free_.pop_back();
    return executor;
  }

  const std::string name_;
  const std::vector<std::unique_ptr<Executor>> executors_;
  absl::Mutex mutex_;
  std::vector<Executor*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Executor> MakeExecutorSet(std::vector<std::unique_ptr<Executor>> executors) {
  return std::make_unique<ExecutorSet>(std::move(executors));
}

}  // namespace cpshard
