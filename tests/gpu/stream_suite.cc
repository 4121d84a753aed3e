// Runs between what is on a caller's stream before them and behind them, and while it is captured.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/exec/cuda.h"
#include "core/exec/device/device_lost.h"
#include "tests/gpu/anchors.h"
#include "tests/gpu/swap.h"

namespace cpshard {
namespace {

constexpr int64_t kBytes = 8 << 20;
constexpr int64_t kBehindMicroseconds = 20000;  // longer than the CPU takes to enqueue the rest

struct StreamCase {
  const char* name;
  bool is_pinned;  // the source; the rest is memory of the device
  DeviceExecutorOptions executor;
};

class GpuStream : public testing::TestWithParam<StreamCase> {
 protected:
  void SetUp() override {
    auto pinned = MakePinnedPool(0, 4 * kBytes);
    auto device = MakeCudaMemoryPool(0, 4 * kBytes);
    ASSERT_TRUE(pinned.ok() && device.ok()) << pinned.status() << device.status();
    for (Buffer* buffer : {&numbers_, &zeros_, &found_}) *buffer = *pinned->Allocate(kBytes);
    for (Buffer* buffer : {&dest_, &brought_, &kept_}) {
      *buffer = *device->Allocate(kBytes);
    }
    source_ = GetParam().is_pinned ? *pinned->Allocate(kBytes) : *device->Allocate(kBytes);
    FillWithNumbers(numbers_.data(), kBytes);
    std::memset(zeros_.data(), 0, kBytes);
  }

  static absl::Status Enqueue(const Buffer& to, const Buffer& from) {
    return EnqueueCopy(to.data(), from.data(), kBytes);
  }

  static bool SourceIsToCome() {
    const absl::StatusOr<bool> busy = IsBusy();
    return busy.ok() ? *busy : absl::IsUnimplemented(busy.status());
  }

  Buffer numbers_, zeros_, found_;
  Buffer source_, dest_, brought_, kept_;
};

INSTANTIATE_TEST_SUITE_P(
    Gpu, GpuStream,
    testing::Values(StreamCase{"device", false, {}},
                    StreamCase{"device_returning_early", false, {.return_early = true}},
                    StreamCase{"pinned_in_place", true, {}},
                    StreamCase{
                        "pinned_copied_first", true, {.pinned_source = PinnedSource::kCopyFirst}}),
    [](const auto& info) { return std::string(info.param.name); });

// The default stream: long work, then the source is filled; Run; then the result is taken away, and
// source and result are overwritten.
TEST_P(GpuStream, ARunReadsWhatTheStreamBroughtAndIsReadByWhatComesBehind) {
  CudaExecutorOptions options;
  options.stream = nullptr;
  options.executor = GetParam().executor;
  const auto executor = MadeExecutor(options);
  ASSERT_TRUE(Enqueue(source_, zeros_).ok() && Enqueue(brought_, numbers_).ok());
  // The kernels of a first copy of each kind are loaded now: that waits for whatever is under way.
  ASSERT_TRUE(Enqueue(dest_, brought_).ok() && Enqueue(kept_, dest_).ok());
  ASSERT_TRUE(EnqueueSpin(1).ok());
  ASSERT_TRUE(Enqueue(kept_, zeros_).ok() && WaitForDevice().ok());
  const Task tasks[] = {Swap(source_.data(), dest_.data(), kBytes)};
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(EnqueueSpin(kBehindMicroseconds).ok() && Enqueue(source_, brought_).ok());
    ASSERT_TRUE(SourceIsToCome()) << "round " << round;
    const absl::Status status = executor->Run(tasks);
    ASSERT_TRUE(status.ok()) << status;
    if (options.executor.return_early) {
      ASSERT_TRUE(SourceIsToCome()) << "round " << round;
    }
    ASSERT_TRUE(Enqueue(kept_, dest_).ok());
    ASSERT_TRUE(Enqueue(source_, zeros_).ok() && Enqueue(dest_, zeros_).ok());
    ASSERT_TRUE(WaitForDevice().ok());
    ASSERT_TRUE(CopyNow(found_.data(), kept_.data(), kBytes).ok());
    ASSERT_TRUE(IsSwapped(found_.data(), numbers_.data(), kBytes)) << "round " << round;
    ASSERT_TRUE(Enqueue(kept_, zeros_).ok() && WaitForDevice().ok());
  }
}

// As an allocator that is ordered by the stream hands out memory, and trainers do it.
TEST_P(GpuStream, ManyRunsInARowOfWhichEachReadsWhatTheLastOneWrote) {
  CudaExecutorOptions options;
  options.stream = nullptr;
  options.pinned_bytes = 4096;  // tables of which each waits for the last but one
  options.executor = GetParam().executor;
  const auto executor = MadeExecutor(options);
  ASSERT_TRUE(Enqueue(source_, numbers_).ok());
  for (int i = 0; i < 100; ++i) {
    const Buffer& from = i % 2 == 0 ? source_ : dest_;
    const Buffer& to = i % 2 == 0 ? dest_ : source_;
    const Task tasks[] = {Swap(from.data(), to.data(), kBytes)};
    const absl::Status status = executor->Run(tasks);
    ASSERT_TRUE(status.ok()) << status;
  }
  ASSERT_TRUE(CopyNow(found_.data(), source_.data(), kBytes).ok());
  EXPECT_EQ(std::memcmp(found_.data(), numbers_.data(), kBytes), 0);
}

TEST_P(GpuStream, ACaptureIsRefusedAndBothGoOn) {
  const auto stream = NewStream();
  if (absl::IsUnimplemented(stream.status())) GTEST_SKIP() << stream.status().message();
  ASSERT_TRUE(stream.ok()) << stream.status();
  CudaExecutorOptions options;
  options.stream = *stream;
  options.executor = GetParam().executor;
  const auto executor = MadeExecutor(options);
  ASSERT_TRUE(Enqueue(source_, numbers_).ok() && WaitForDevice().ok());
  const Task tasks[] = {Swap(source_.data(), dest_.data(), kBytes)};
  absl::Status refused;
  const absl::Status captured = WhileCaptured(*stream, [&] { refused = executor->Run(tasks); });
  EXPECT_TRUE(captured.ok()) << captured;
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_FALSE(IsDeviceLost(refused)) << refused;
  const absl::Status status = executor->Run(tasks);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(WaitForDevice().ok());
  ASSERT_TRUE(CopyNow(found_.data(), dest_.data(), kBytes).ok());
  EXPECT_TRUE(IsSwapped(found_.data(), numbers_.data(), kBytes));
}

}  // namespace
}  // namespace cpshard
