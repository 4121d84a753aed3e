// The executor for devices passes the contract of Executor on the host-compiled bodies: in place,
// and with every byte copied to the device and back through little pinned memory, in small pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/batch/buffer.h"
#include "core/exec/device/device_lost.h"
#include "core/exec/device/emulated.h"
#include "tests/exec/device_equality.h"
#include "tests/exec/wrapped_device.h"

namespace cpshard {
namespace {

EmulatedDeviceOptions Copying(int64_t pinned_bytes, int64_t piece_bytes) {
  EmulatedDeviceOptions options;
  options.host_memory = Device::Reach::kNone;
  options.pinned_bytes = pinned_bytes;
  options.executor.piece_bytes = piece_bytes;
  return options;
}

EmulatedDeviceOptions InParts(EmulatedDeviceOptions options, int64_t memory_bytes) {
  options.memory_bytes = memory_bytes;
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
    Factory("pinned_copied_first", PinnedCopiedFirst()),
    Factory("in_place_in_parts", InParts({}, 2 << 10)),
    Factory("copied_in_parts", InParts(Copying(4 << 10, 4096), 64 << 10)),
    Factory("copied_in_many_parts", InParts(Copying(256, 64), 8 << 10)),
    Factory("pinned_copied_first_in_parts", InParts(PinnedCopiedFirst(), 200 << 10)));

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
  const CutTask& task() const { return task_; }
  absl::Status RunOn(Executor& executor) const {
    const Task tasks[] = {task_};
    return executor.Run(tasks);
  }
  bool IsDone() const { return dest_ == source_; }
  bool IsUntouched() const { return dest_ == std::vector<std::byte>(1000, std::byte{9}); }

 private:
  std::vector<std::byte> source_, dest_;
  CutTask task_;
};

TEST(DeviceExecutor, WhatDoesNotFitItsMemoryAtOnceIsDoneInParts) {
  for (const int64_t memory_bytes : {500, 1000, 2000, 4000}) {
    DeviceTraffic traffic;
    EmulatedDeviceOptions options = Copying(1 << 10, 4096);
    options.memory_bytes = memory_bytes;
    options.traffic = &traffic;
    Copy copy;
    const absl::Status status = copy.RunOn(*MakeEmulatedDeviceExecutor(options));
    EXPECT_TRUE(copy.IsDone()) << status;
    EXPECT_EQ(traffic.launches > 1, memory_bytes < 2200) << traffic.launches;
    EXPECT_EQ(traffic.bytes_written, 1000);  // nothing twice
  }
}

TEST(DeviceExecutor, WhatNoPartFitsIsRefusedWithTheNumbersAndNothingIsWritten) {
  EmulatedDeviceOptions options = Copying(1 << 10, 4096);
  options.memory_bytes = 300;
  const std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(options);
  Copy copy;
  const absl::Status status = copy.RunOn(*executor);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("the 300 bytes"));
  EXPECT_TRUE(NeverFits(status));
  EXPECT_TRUE(copy.IsUntouched());
}

TEST(DeviceExecutor, NothingToDoNeedsNoMemory) {
  const std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(InParts({}, 1));
  EXPECT_TRUE(executor->Run({}).ok());
  const Copy copy;
  CutTask nothing = copy.task();
  nothing.outer = 0;
  const Task tasks[] = {nothing, DeriveTask()};
  EXPECT_TRUE(executor->Run(tasks).ok());
  EXPECT_TRUE(copy.IsUntouched());
}

// Memory for the table of a copy, not for that of a derivation, which has one rule more.
EmulatedDeviceOptions ForCopiesAlone() { return InParts({}, 300); }

// dest = source != 0, one element.
class Derivation {
 public:
  Derivation() {
    task_.source = reinterpret_cast<const std::byte*>(&source_);
    task_.dest = reinterpret_cast<std::byte*>(&dest_);
    task_.count = 1;
  }
  const DeriveTask& task() const { return task_; }

 private:
  int64_t source_ = 7;
  bool dest_ = false;
  DeriveTask task_;
};

TEST(DeviceExecutor, WhetherAllPartsFitIsKnownBeforeTheFirstIsBegun) {
  const std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(ForCopiesAlone());
  Copy copy;
  const Derivation derivation;
  const Task tasks[] = {copy.task(), derivation.task()};
  EXPECT_EQ(executor->Run(tasks).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(copy.IsUntouched());
}

TEST(DeviceExecutor, GoesOnAfterARefusal) {
  const std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(ForCopiesAlone());
  const Derivation derivation;
  const Task refused[] = {derivation.task()};
  EXPECT_EQ(executor->Run(refused).code(), absl::StatusCode::kResourceExhausted);
  Copy copy;
  const absl::Status status = copy.RunOn(*executor);
  EXPECT_TRUE(copy.IsDone()) << status;
}

// A device that fails at its n-th call.
class FailingDevice : public WrappedDevice {
 public:
  FailingDevice(int fails_at, bool* is_idle)
      : WrappedDevice(MakeEmulatedDevice(Copying(512, 64))), left_(fails_at), is_idle_(is_idle) {}

  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    return Do([&] { return WrappedDevice::CopyIn(device, pinned, bytes); });
  }
  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    return Do([&] { return WrappedDevice::CopyOut(pinned, device, bytes); });
  }
  absl::Status Mark(int number) override {
    return Do([&] { return WrappedDevice::Mark(number); });
  }
  absl::Status Await(int number) override {
    return Do([&] { return WrappedDevice::Await(number); });
  }
  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    return Do([&] { return WrappedDevice::Launch(rules, pieces, count); });
  }
  absl::Status Finish() override {
    *is_idle_ = true;
    return WrappedDevice::Finish();
  }

 private:
  template <typename Fn>
  absl::Status Do(Fn fn) {
    *is_idle_ = false;
    if (--left_ == 0) return absl::InternalError("broken");
    return fn();
  }

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

// A device that fails at a launch, and then cannot be waited for.
class LostDevice : public WrappedDevice {
 public:
  LostDevice() : WrappedDevice(MakeEmulatedDevice({})) {}

  absl::Status Launch(const Rule*, const Piece*, int64_t) override {
    return absl::InternalError("broken");
  }
  absl::Status Finish() override { return DeviceLost(absl::InternalError("no end of it")); }
};

TEST(DeviceExecutor, WhereWhatIsUnderWayCannotBeWaitedForTheDeviceIsLostWhateverFailedBefore) {
  const auto executor = MakeDeviceExecutor(std::make_unique<LostDevice>());
  const absl::Status status = Copy().RunOn(*executor);
  EXPECT_TRUE(IsDeviceLost(status)) << status;
  EXPECT_EQ(status.message(), "no end of it");
}

TEST(DeviceExecutor, PiecesOfNothingAreOfOneByte) {
  for (const int64_t piece_bytes : {0, -7}) {
    EmulatedDeviceOptions options = InParts({}, 4 << 10);  // too little for 1,000 pieces
    options.executor.piece_bytes = piece_bytes;
    Copy copy;
    EXPECT_TRUE(copy.RunOn(*MakeEmulatedDeviceExecutor(options)).ok());
    EXPECT_TRUE(copy.IsDone());
  }
}

// What lies between the elements of a diagonal is brought to the device only where it is little.
TEST(DeviceExecutor, OfALargeDiagonalLittleMoreThanItsElementsIsCopied) {
  constexpr int64_t kSize = 2000, kBatch = 2;
  std::vector<std::byte> mask(kBatch * kSize * kSize);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<std::byte>(i % 3 == 0);
  std::vector<std::byte> diagonal(kBatch * kSize), expected(kBatch * kSize);
  DeriveTask task;
  task.source = mask.data();
  task.source_dtype = task.dest_dtype = DType::kBool;
  task.count = kBatch * kSize;
  task.is_diagonal = true;
  task.diagonal = {1, kSize, kSize};
  task.dest = expected.data();
  Task tasks[] = {task};
  ASSERT_TRUE(MakeCpuExecutor()->Run(tasks).ok());
  for (const Device::Reach reach : {Device::Reach::kNone, Device::Reach::kPinned}) {
    DeviceTraffic traffic;
    EmulatedDeviceOptions options = PinnedCopiedFirst();
    options.host_memory = reach;
    options.traffic = &traffic;
    task.dest = diagonal.data();
    tasks[0] = task;
    std::fill(diagonal.begin(), diagonal.end(), std::byte{9});
    ASSERT_TRUE(MakeEmulatedDeviceExecutor(options)->Run(tasks).ok());
    EXPECT_EQ(diagonal, expected);
    EXPECT_LT(traffic.copied_in, kBatch * kSize * 100);  // 64 bytes an element and 32 of table
  }
}

TEST(DeviceExecutor, ALostDeviceStaysLostAndNothingIsWrittenAnyMore) {
  for (const Device::Reach reach : {Device::Reach::kOwn, Device::Reach::kNone}) {
    EmulatedDeviceOptions options = Copying(512, 4096);
    options.host_memory = reach;
    options.lose_after_launches = 2;
    const std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(options);
    for (int round = 0; round < 5; ++round) {
      Copy copy;
      const absl::Status status = copy.RunOn(*executor);
      if (round < 2) {
        EXPECT_TRUE(copy.IsDone()) << status;
        continue;
      }
      EXPECT_TRUE(IsDeviceLost(status)) << status;
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("launch 3"));
      EXPECT_TRUE(copy.IsUntouched());
    }
  }
}

TEST(DeviceExecutor, WhatIsPassedOnIsStillADeviceLostAndNoOtherErrorIs) {
  const absl::Status lost = DeviceLost(absl::InternalError("error 700"));
  const absl::StatusOr<int> passed_on = lost;
  EXPECT_TRUE(IsDeviceLost(passed_on.status()));
  EXPECT_EQ(passed_on.status().message(), "error 700");
  EXPECT_FALSE(IsDeviceLost(absl::InternalError("error 700")));
  EXPECT_FALSE(IsDeviceLost(absl::OkStatus()));
}

}  // namespace
}  // namespace cpshard
