#include "server/executors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "core/exec/device/device_lost.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

// A device that is lost when `lost` says so.
class Losable final : public Executor {
 public:
  struct State {
    std::atomic<bool> lost = false;
    std::atomic<int> runs = 0;
  };

  explicit Losable(State& state) : state_(state) {}

  absl::Status Run(absl::Span<const Task>) override {
    ++state_.runs;
    if (!state_.lost) return answer;
    return DeviceLost(absl::InternalError("cudaStreamSynchronize: error 700"));
  }
  absl::string_view name() const override { return "cuda:1"; }

  absl::Status answer;

 private:
  State& state_;
};

class ExecutorsTest : public testing::Test {
 protected:
  static Executors OfTheCpu() { return Executors({MakeCpuExecutor(), "no driver", nullptr}); }
  Executors OfADevice(absl::Status answer = absl::OkStatus()) {
    auto executor = std::make_unique<Losable>(state_);
    executor->answer = std::move(answer);
    return Executors({std::move(executor), "H200", nullptr}, [this](const absl::Status& status) {
      absl::MutexLock lock(&mutex_);
      told_.push_back(status);
    });
  }

  Losable::State state_;
  absl::Mutex mutex_;
  std::vector<absl::Status> told_;
};

std::string NameOf(const Executors& executors, ExecutorKind kind) {
  const absl::StatusOr<Executor*> executor = executors.Named(kind);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? std::string((*executor)->name()) : "";
}

TEST_F(ExecutorsTest, AServerOfTheCpuHasNoOther) {
  const Executors executors = OfTheCpu();
  EXPECT_EQ(executors.name(), "cpu");
  EXPECT_EQ(NameOf(executors, ExecutorKind::kAuto), "cpu");
  EXPECT_EQ(NameOf(executors, ExecutorKind::kCpu), "cpu");
  const absl::Status status = executors.Named(ExecutorKind::kCuda).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* text : {"'cuda'", "cpu", "no driver", "executor = cuda"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST_F(ExecutorsTest, AServerWithADeviceHasTheCpuToo) {
  const Executors executors = OfADevice();
  EXPECT_EQ(executors.name(), "cuda:1");
  EXPECT_EQ(executors.reason(), "H200");
  EXPECT_EQ(NameOf(executors, ExecutorKind::kAuto), "cuda:1");
  EXPECT_EQ(NameOf(executors, ExecutorKind::kCuda), "cuda:1");
  EXPECT_EQ(NameOf(executors, ExecutorKind::kCpu), "cpu");
}

TEST_F(ExecutorsTest, ALostDeviceIsToldOnceAndRunsNoMore) {
  const Executors executors = OfADevice();
  Executor* const device = *executors.Named(ExecutorKind::kCuda);
  EXPECT_TRUE(device->Run({}).ok());
  state_.lost = true;
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = device->Run({});
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(IsDeviceLost(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:1"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("error 700"));
    EXPECT_EQ(WasUnderWayWhenLost(status), i == 0);  // those after it did not lose it
    state_.lost = false;                             // what the driver says later does not count
  }
  EXPECT_EQ(state_.runs, 2);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].message(), "cudaStreamSynchronize: error 700");
  EXPECT_TRUE((*executors.Named(ExecutorKind::kCpu))->Run({}).ok());
}

TEST_F(ExecutorsTest, AnErrorOfOneRunIsThatRunsAlone) {
  const Executors executors = OfADevice(absl::ResourceExhaustedError("too large"));
  Executor* const device = *executors.Named(ExecutorKind::kAuto);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(device->Run({}), absl::ResourceExhaustedError("too large"));
  }
  EXPECT_TRUE(told_.empty());
}

TEST_F(ExecutorsTest, AllThreadsThatSeeALossAreRefusedAndOneTells) {
  constexpr int kThreads = 8;
  const Executors executors = OfADevice();
  Executor* const device = *executors.Named(ExecutorKind::kAuto);
  state_.lost = true;
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] { refused += absl::IsUnavailable(device->Run({})) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, kThreads);
  EXPECT_EQ(told_.size(), 1u);
}

}  // namespace
}  // namespace cpshard
