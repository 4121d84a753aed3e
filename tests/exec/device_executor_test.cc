// The executor for devices passes the contract of Executor on the host-compiled bodies: in place,
// and with every byte copied to the device and back through little pinned memory, in small pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/exec/device/emulated.h"
#include "tests/exec/device_equality.h"

namespace cpshard {
namespace {

EmulatedDeviceOptions Copying(int64_t pinned_bytes, int64_t piece_bytes) {
  EmulatedDeviceOptions options;
  options.host_memory = Device::Reach::kNone;
  options.pinned_bytes = pinned_bytes;
  options.executor.piece_bytes = piece_bytes;
  return options;
}

EmulatedDeviceOptions PinnedCopiedFirst() {
  EmulatedDeviceOptions options;
  options.host_memory = Device::Reach::kPinned;
  options.executor.pinned_source = PinnedSource::kCopyFirst;
  return options;
}

ExecutorFactory Factory(std::string name, const EmulatedDeviceOptions& options) {
  return {std::move(name), [options] { return MakeEmulatedDeviceExecutor(options); }};
}

const auto kEveryWay = testing::Values(
    Factory("in_place", {}), Factory("in_place_small_pieces", {.executor = {.piece_bytes = 100}}),
    Factory("copied", Copying(1 << 20, 4096)), Factory("copied_through_little", Copying(256, 64)),
    Factory("pinned_copied_first", PinnedCopiedFirst()));

std::string NameOf(const testing::TestParamInfo<ExecutorFactory>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(EmulatedDevice, ExecutorContract, kEveryWay, NameOf);
INSTANTIATE_TEST_SUITE_P(EmulatedDevice, DeviceEquality, kEveryWay, NameOf);

TEST(DeviceExecutor, HasTheNameOfItsDevice) {
  EXPECT_EQ(MakeEmulatedDeviceExecutor()->name(), "emulated-device");
}

// A copy of 1,000 bytes, and what it writes.
class Copy {
 public:
  Copy() : source_(1000), dest_(1000, std::byte{9}) {
    for (size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i);
    task_.source = source_.data();
    task_.outer = 1;
    task_.column_bytes = 1;
    task_.dtype = DType::kU8;
    task_.moves = Share({{{Move::Kind::kCopy, 0, 0, 0, 0, 1000, 0}}});
    task_.dests = {dest_.data()};
    task_.dest_strides = {1000};
  }
  absl::Status RunOn(Executor& executor) {
    const Task tasks[] = {task_};
    return executor.Run(tasks);
  }
  bool IsDone() const { return dest_ == source_; }
  bool IsUntouched() const { return dest_ == std::vector<std::byte>(1000, std::byte{9}); }

 private:
  std::vector<std::byte> source_, dest_;
  CutTask task_;
};

TEST(DeviceExecutor, WhatDoesNotFitItsMemoryIsRefusedWithTheNumbersAndNothingIsWritten) {
  EmulatedDeviceOptions options = Copying(1 << 10, 4096);
  options.memory_bytes = 2000;
  const std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(options);
  Copy copy;
  const absl::Status status = copy.RunOn(*executor);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("the 2000 "));
  EXPECT_TRUE(copy.IsUntouched());
}

TEST(DeviceExecutor, GoesOnAfterARefusal) {
  EmulatedDeviceOptions options;
  options.memory_bytes = 1000;  // enough for the table of a small copy, not for that of many
  options.executor.piece_bytes = 1;
  const std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(options);
  Copy copy;
  EXPECT_EQ(copy.RunOn(*executor).code(), absl::StatusCode::kResourceExhausted);
  DeriveTask derive;
  const int64_t source = 7;
  bool dest = false;
  derive.source = reinterpret_cast<const std::byte*>(&source);
  derive.dest = reinterpret_cast<std::byte*>(&dest);
  derive.count = 1;
  const Task tasks[] = {derive};
  EXPECT_TRUE(executor->Run(tasks).ok());
  EXPECT_TRUE(dest);
}

// A device that fails at its n-th call.
class FailingDevice : public Device {
 public:
  FailingDevice(int fails_at, bool* is_idle)
      : device_(MakeEmulatedDevice(Copying(512, 64))), left_(fails_at), is_idle_(is_idle) {}

  absl::string_view name() const override { return "failing"; }
  absl::StatusOr<Reach> ReachOf(const std::byte* at) override { return device_->ReachOf(at); }
  Memory memory() override { return device_->memory(); }
  Memory pinned() override { return device_->pinned(); }
  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    return Do([&] { return device_->CopyIn(device, pinned, bytes); });
  }
  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    return Do([&] { return device_->CopyOut(pinned, device, bytes); });
  }
  absl::Status Mark(int number) override {
    return Do([&] { return device_->Mark(number); });
  }
  absl::Status Await(int number) override {
    return Do([&] { return device_->Await(number); });
  }
  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    return Do([&] { return device_->Launch(rules, pieces, count); });
  }
  absl::Status Finish() override {
    *is_idle_ = true;
    return device_->Finish();
  }

 private:
  template <typename Fn>
  absl::Status Do(Fn fn) {
    *is_idle_ = false;
    if (--left_ == 0) return absl::InternalError("broken");
    return fn();
  }

  const std::unique_ptr<Device> device_;
  int left_;
  bool* const is_idle_;
};

TEST(DeviceExecutor, AnErrorOfTheDeviceIsReturnedOnceNothingIsUnderWay) {
  int failures = 0;
  for (int fails_at = 1; fails_at < 100; ++fails_at) {
    bool is_idle = false;
    const auto executor = MakeDeviceExecutor(std::make_unique<FailingDevice>(fails_at, &is_idle));
    Copy copy;
    const absl::Status status = copy.RunOn(*executor);
    EXPECT_TRUE(is_idle) << fails_at;
    if (status.ok()) {
      EXPECT_TRUE(copy.IsDone());
      break;
    }
    EXPECT_EQ(status, absl::InternalError("broken"));
    ++failures;
  }
  EXPECT_GT(failures, 10);
  EXPECT_LT(failures, 99);
}

}  // namespace
}  // namespace cpshard
