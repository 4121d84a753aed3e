#include "core/exec/executor_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace cpshard {
namespace {

// Where the Runs of several executors meet: none goes on before so many are under way.
class Meeting {
 public:
  explicit Meeting(int at_once) : at_once_(at_once) {}

  absl::Status Run() {
    absl::MutexLock lock(&mutex_);
    most_ = std::max(most_, ++under_way_);
    const auto met = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return most_ >= at_once_; };
    const bool has_met = mutex_.AwaitWithTimeout(absl::Condition(&met), absl::Seconds(20));
    --under_way_;
    return has_met ? absl::OkStatus() : absl::DeadlineExceededError("alone");
  }

  int most() {
    absl::MutexLock lock(&mutex_);
    return most_;
  }

 private:
  const int at_once_;
  absl::Mutex mutex_;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0, most_ ABSL_GUARDED_BY(mutex_) = 0;
};

class MeetingExecutor : public Executor {
 public:
  explicit MeetingExecutor(Meeting& meeting) : meeting_(meeting) {}
  absl::Status Run(absl::Span<const Task>) override { return meeting_.Run(); }
  absl::string_view name() const override { return "meeting"; }

 private:
  Meeting& meeting_;
};

TEST(ExecutorSet, CarriesOutAsManyRunsAtATimeAsThereAreExecutorsAndNoMore) {
  Meeting meeting(3);
  std::vector<std::unique_ptr<Executor>> executors;
  for (int i = 0; i < 3; ++i) executors.push_back(std::make_unique<MeetingExecutor>(meeting));
  const std::unique_ptr<Executor> set = MakeExecutorSet(std::move(executors));
  std::vector<absl::Status> statuses(12);
  std::vector<std::thread> threads;
  for (absl::Status& status : statuses) {
    threads.emplace_back([&] { status = set->Run({}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(meeting.most(), 3);
}

// Fails every other time.
class FailingExecutor : public Executor {
 public:
  explicit FailingExecutor(std::string name) : name_(std::move(name)) {}
  absl::Status Run(absl::Span<const Task>) override {
    return ++runs_ % 2 == 1 ? absl::InternalError("broken") : absl::OkStatus();
  }
  absl::string_view name() const override { return name_; }

 private:
  const std::string name_;
  int runs_ = 0;
};

TEST(ExecutorSet, AnErrorOfARunIsReturnedAndTheExecutorIsUsedAgain) {
  std::vector<std::unique_ptr<Executor>> one;
  one.push_back(std::make_unique<FailingExecutor>("one"));
  const std::unique_ptr<Executor> set = MakeExecutorSet(std::move(one));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(set->Run({}), absl::InternalError("broken"));
    EXPECT_TRUE(set->Run({}).ok());
  }
}

TEST(ExecutorSet, IsCalledLikeItsFirst) {
  std::vector<std::unique_ptr<Executor>> two;
  two.push_back(std::make_unique<FailingExecutor>("cuda:3"));
  two.push_back(std::make_unique<FailingExecutor>("other"));
  EXPECT_EQ(MakeExecutorSet(std::move(two))->name(), "cuda:3");
}

}  // namespace
}  // namespace cpshard
