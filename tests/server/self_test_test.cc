#include "server/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/exec/device/device_lost.h"
#include "core/exec/device/emulated.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The CPU's executor, but for one byte of one Run.
class WrongOnce final : public Executor {
 public:
  explicit WrongOnce(int run) : run_(run) {}

  absl::Status Run(absl::Span<const Task> tasks) override {
    const absl::Status status = cpu_->Run(tasks);
    if (++runs_ == run_) WrongByte(tasks.back());
    return status;
  }
  absl::string_view name() const override { return "cuda:0"; }
  int runs() const { return runs_; }

 private:
  // The first byte of the last move.
  static void WrongByte(const Task& task);

  const std::unique_ptr<Executor> cpu_ = MakeCpuExecutor();
  const int run_;
  int runs_ = 0;
};

class Failing final : public Executor {
 public:
  explicit Failing(absl::Status status) : status_(std::move(status)) {}
  absl::Status Run(absl::Span<const Task>) override { return status_; }
  absl::string_view name() const override { return "cuda:0"; }

 private:
  const absl::Status status_;
};

void WrongOnce::WrongByte(const Task& task) {
  if (const auto* derive = std::get_if<DeriveTask>(&task)) {
    *derive->dest ^= std::byte{1};
    return;
  }
  const auto& cut = std::get<CutTask>(task);
  const Move& move = cut.moves->front().back();
  cut.dests[move.dest][move.to * cut.column_bytes] ^= std::byte{1};
}

// Memory of a place, which has so many blocks and counts those that are out.
class Blocks final : public BlockSource {
 public:
  explicit Blocks(int left = 1000) : left_(left) {}
  std::byte* Take(size_t size) override {
    if (left_-- == 0) return nullptr;
    ++out_;
    return SystemBlocks()->Take(size);
  }
  void Give(std::byte* block, size_t size) override {
    --out_;
    SystemBlocks()->Give(block, size);
  }
  int out() const { return out_; }

 private:
  int left_, out_ = 0;
};

absl::Status Tested(Executor& executor) {
  const auto blocks = std::make_shared<Blocks>();
  const absl::Status status = TestExecutor(executor, blocks);
  EXPECT_EQ(blocks->out(), 0);
  return status;
}

TEST(SelfTest, AnExecutorThatDoesAsTheCpuPasses) {
  EXPECT_TRUE(Tested(*MakeCpuExecutor()).ok());
  for (const auto reach : {Device::Reach::kNone, Device::Reach::kPinned}) {
    EmulatedDeviceOptions options;
    options.host_memory = reach;
    const absl::Status status = Tested(*MakeEmulatedDeviceExecutor(options));
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(SelfTest, OneWrongByteOfAnyRunIsFoundAndNamed) {
  WrongOnce right(0);
  ASSERT_TRUE(Tested(right).ok());
  ASSERT_GE(right.runs(), 6);  // three layouts, in two kinds of memory
  WrongOnce plain(0);
  ASSERT_TRUE(TestExecutor(plain, nullptr).ok());
  EXPECT_EQ(2 * plain.runs(), right.runs());
  for (int run = 1; run <= right.runs(); ++run) {
    WrongOnce wrong(run);
    const absl::Status status = Tested(wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << "run " << run;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("cuda:0 computes wrongly"), HasSubstr("rank "),
                      HasSubstr("stream '"), HasSubstr("executor = cpu")));
  }
}

TEST(SelfTest, WhatTheExecutorOrTheMemorySaysComesOut) {
  Failing failing(DeviceLost(absl::InternalError("error 700")));
  EXPECT_TRUE(IsDeviceLost(Tested(failing)));
  EXPECT_EQ(TestExecutor(*MakeCpuExecutor(), std::make_shared<Blocks>(1)).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cpshard
