// What the executor for devices does with memory of several kinds in one Run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/exec/device/device_lost.h"
#include "core/exec/device/emulated.h"
#include "tests/exec/executor_contract.h"
#include "tests/exec/wrapped_device.h"

namespace cpshard {
namespace {

using Reach = Device::Reach;

// What kind of memory begins at an address; the last one that begins at or before it counts.
using Kinds = std::vector<std::pair<const std::byte*, Reach>>;

// Over host memory of these kinds. Of the copy engine's requests it counts those that name host
// memory which is not all pinned, or of two allocations.
class MixedDevice : public WrappedDevice {
 public:
  MixedDevice(Kinds kinds, int* wrong)
      : WrappedDevice(MakeEmulatedDevice({.host_memory = Reach::kNone})),
        kinds_(std::move(kinds)),
        wrong_(wrong) {}

  absl::StatusOr<Reach> ReachOf(const std::byte* at) override {
    const int which = Which(at);
    return which < 0 ? WrappedDevice::ReachOf(at) : kinds_[which].second;
  }
  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    Check(pinned, bytes);
    return WrappedDevice::CopyIn(device, pinned, bytes);
  }
  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    Check(pinned, bytes);
    return WrappedDevice::CopyOut(pinned, device, bytes);
  }

 private:
  int Which(const std::byte* at) const {
    int which = -1;
    for (size_t i = 0; i < kinds_.size() && kinds_[i].first <= at; ++i) which = static_cast<int>(i);
    return which;
  }

  void Check(const std::byte* at, int64_t bytes) {
    const Memory bounce = pinned();
    if (at >= bounce.begin && at + bytes <= bounce.begin + bounce.size) return;
    const int which = Which(at);
    const bool good =
        which >= 0 && which == Which(at + bytes - 1) && kinds_[which].second == Reach::kPinned;
    if (!good) ++*wrong_;
  }

  const Kinds kinds_;
  int* const wrong_;
};

constexpr int64_t kPart = 128 << 10;  // more than what goes through the bounce block in any case

// Two parts of one block, edge to edge, of two kinds; sources in the first half of the block,
// destinations in the second.
class EdgeToEdge {
 public:
  EdgeToEdge() : block_(4 * kPart + 256) {
    begin_ = block_.data() + -reinterpret_cast<uintptr_t>(block_.data()) % 256;
    for (int64_t i = 0; i < 2 * kPart; ++i) begin_[i] = static_cast<std::byte>(i * i >> 3);
  }

  // Runs a copy of each part to the part that lies so many bytes further on.
  absl::Status Run(Reach first, Reach second, int* wrong) {
    const Kinds kinds = {{nullptr, Reach::kNone},      {begin_, first},
                         {begin_ + kPart, second},     {begin_ + 2 * kPart, first},
                         {begin_ + 3 * kPart, second}, {begin_ + 4 * kPart, Reach::kNone}};
    const auto executor = MakeDeviceExecutor(std::make_unique<MixedDevice>(kinds, wrong),
                                             {.pinned_source = PinnedSource::kCopyFirst});
    const std::vector<Task> tasks = {Copy(begin_), Copy(begin_ + kPart)};
    return executor->Run(tasks);
  }

  bool IsDone() const { return std::memcmp(begin_, begin_ + 2 * kPart, 2 * kPart) == 0; }

 private:
  static CutTask Copy(std::byte* source) { return CopyOf(source, source + 2 * kPart, kPart); }

  std::vector<std::byte> block_;
  std::byte* begin_ = nullptr;
};

TEST(DeviceMemory, TheCopyEngineIsGivenPinnedMemoryOfOneAllocationAtATime) {
  for (const Reach first : {Reach::kPinned, Reach::kNone}) {
    for (const Reach second : {Reach::kPinned, Reach::kNone}) {
      EdgeToEdge memory;
      int wrong = 0;
      const absl::Status status = memory.Run(first, second, &wrong);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(memory.IsDone());
      EXPECT_EQ(wrong, 0) << static_cast<int>(first) << " and " << static_cast<int>(second);
    }
  }
}

TEST(DeviceMemory, ATensorThatLiesInMemoryOfTwoKindsIsRefused) {
  const std::vector<std::pair<Reach, std::string>> reaches = {
      {Reach::kNone, "pageable"}, {Reach::kPinned, "pinned"}, {Reach::kOwn, "the device's"}};
  for (const auto& [first, first_name] : reaches) {
    for (const auto& [last, last_name] : reaches) {
      if (first == last) continue;
      std::vector<std::byte> source(100), dest(100, std::byte{9});
      const Kinds kinds = {
          {source.data(), first}, {source.data() + 99, last}, {source.data() + 100, Reach::kOwn}};
      int wrong = 0;
      const auto executor = MakeDeviceExecutor(std::make_unique<MixedDevice>(kinds, &wrong));
      const Task tasks[] = {CopyOf(source.data(), dest.data(), 100)};
      const absl::Status status = executor->Run(tasks);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  testing::HasSubstr("the 100 bytes on end that a task names the first is " +
                                     first_name + " memory, the last " + last_name));
      EXPECT_EQ(dest, std::vector<std::byte>(100, std::byte{9}));
    }
  }
}

// The first part's result is brought out by the copy engine, and the CPU reads some of it for the
// second part.
TEST(DeviceMemory, APartReadsWhatTheOneBeforeItHasWritten) {
  std::vector<std::byte> source(kPart, std::byte{3}), middle(kPart), dest(1000);
  DeviceTraffic traffic;
  EmulatedDeviceOptions options;
  options.memory_bytes = 2 * kPart + 600;
  options.host_memory = Reach::kPinned;
  options.executor.pinned_source = PinnedSource::kCopyFirst;
  options.traffic = &traffic;
  const Task tasks[] = {CopyOf(source.data(), middle.data(), kPart),
                        CopyOf(middle.data() + 500, dest.data(), 1000)};
  const absl::Status status = MakeEmulatedDeviceExecutor(options)->Run(tasks);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(traffic.copied_in, kPart + 1000);  // the second task's source too: there were parts
  EXPECT_EQ(dest, std::vector<std::byte>(1000, std::byte{3}));
}

// Runs that nobody waits for: each copies a part of what the one before wrote, so that their tables
// differ. The device carries out nothing before it has to.
TEST(ReturnEarly, RunsThatNobodyWaitsForAreDoneInTheirOrder) {
  constexpr int64_t kBytes = 3000;
  for (const int64_t pinned_bytes : {int64_t{128}, int64_t{1} << 10, int64_t{1} << 20}) {
    for (const int64_t memory_bytes : {int64_t{1} << 10, int64_t{1} << 20}) {
      EmulatedDeviceOptions options;
      options.memory_bytes = memory_bytes;
      options.pinned_bytes = pinned_bytes;
      options.executor.piece_bytes = 64;
      options.executor.return_early = true;
      std::vector<std::vector<std::byte>> memory(20, std::vector<std::byte>(kBytes));
      for (size_t i = 0; i < kBytes; ++i) memory[0][i] = static_cast<std::byte>(i * 7 >> 2);
      std::unique_ptr<Executor> executor = MakeEmulatedDeviceExecutor(options);
      for (size_t i = 1; i < memory.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const Task tasks[] = {CopyOf(memory[i - 1].data() + at, memory[i].data(), kBytes - 9 * at)};
        ASSERT_TRUE(executor->Run(tasks).ok());
      }
      executor.reset();
      for (size_t i = 1; i < memory.size(); ++i) {
        const auto size = static_cast<ptrdiff_t>(kBytes - 9 * i);
        std::vector<std::byte> expected(memory[i - 1].begin() + static_cast<ptrdiff_t>(i),
                                        memory[i - 1].begin() + static_cast<ptrdiff_t>(i) + size);
        expected.resize(kBytes);
        ASSERT_EQ(memory[i], expected) << "run " << i << ", " << pinned_bytes << " bytes pinned";
      }
    }
  }
}

TEST(ReturnEarly, OnlyARunOverMemoryOfTheDeviceAloneReturnsBeforeItIsDone) {
  std::vector<std::byte> source(1000, std::byte{3}), dest(1000);
  for (const Reach reach : {Reach::kOwn, Reach::kPinned, Reach::kNone}) {
    for (const bool of_source : {true, false}) {
      std::fill(dest.begin(), dest.end(), std::byte{0});
      Kinds kinds = {{nullptr, Reach::kOwn},
                     {of_source ? source.data() : dest.data(), reach},
                     {(of_source ? source.data() : dest.data()) + 1000, Reach::kOwn}};
      int wrong = 0;
      std::unique_ptr<Executor> executor =
          MakeDeviceExecutor(std::make_unique<MixedDevice>(kinds, &wrong), {.return_early = true});
      const Task tasks[] = {CopyOf(source.data(), dest.data(), 1000)};
      ASSERT_TRUE(executor->Run(tasks).ok());
      EXPECT_EQ(dest == source, reach != Reach::kOwn);
      executor.reset();
      EXPECT_EQ(dest, source);
    }
  }
}

TEST(ReturnEarly, ARunThatIsWaitedForComesAfterThoseThatWereNot) {
  std::vector<std::byte> source(1000, std::byte{3}), middle(1000), dest(1000);
  const Kinds kinds = {
      {nullptr, Reach::kOwn}, {dest.data(), Reach::kNone}, {dest.data() + 1000, Reach::kOwn}};
  int wrong = 0;
  const auto executor =
      MakeDeviceExecutor(std::make_unique<MixedDevice>(kinds, &wrong), {.return_early = true});
  const Task first[] = {CopyOf(source.data(), middle.data(), 1000)};
  const Task second[] = {CopyOf(middle.data(), dest.data(), 1000)};
  ASSERT_TRUE(executor->Run(first).ok());
  EXPECT_NE(middle, source);
  ASSERT_TRUE(executor->Run(second).ok());
  EXPECT_EQ(dest, source);
}

TEST(ReturnEarly, ALossOfTheDeviceIsSaidByALaterRun) {
  EmulatedDeviceOptions options;
  options.executor.return_early = true;
  options.lose_after_launches = 0;
  const auto executor = MakeEmulatedDeviceExecutor(options);
  std::vector<std::byte> source(10), dest(10);
  const Task tasks[] = {CopyOf(source.data(), dest.data(), 10)};
  absl::Status status;
  for (int run = 0; run < 5 && status.ok(); ++run) status = executor->Run(tasks);
  EXPECT_TRUE(IsDeviceLost(status)) << status;
}

}  // namespace
}  // namespace cpshard
