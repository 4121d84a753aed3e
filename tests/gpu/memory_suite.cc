// What only a GPU has: memory of its own, pinned memory, allocations that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/exec/cuda.h"
#include "core/exec/device/device_lost.h"
#include "tests/gpu/swap.h"

namespace cpshard {
namespace {

TEST(GpuMemory, TasksMayNameMemoryOfTheDeviceAndOfTheHostTogether) {
  const int64_t bytes = 1 << 20;
  const auto pool = MakeCudaMemoryPool(0, 4 * bytes);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const auto executor = MadeExecutor();
  FixedPool device = *pool;
  const Buffer middle = *device.Allocate(bytes);
  std::vector<std::byte> source(bytes), dest(bytes);
  FillWithNumbers(source.data(), bytes);
  const Task tasks[] = {Swap(source.data(), middle.data(), bytes),
                        Swap(middle.data(), dest.data(), bytes)};
  const absl::Status status = executor->Run(tasks);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(dest, source);
}

TEST(GpuMemory, PinnedMemoryIsReadInPlaceOrCopiedFirstWithTheSameResult) {
  const int64_t bytes = 4 << 20;
  auto pool = MakePinnedPool(0, 4 * bytes);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const Buffer source = *pool->Allocate(bytes), dest = *pool->Allocate(bytes);
  FillWithNumbers(source.data(), bytes);
  for (const PinnedSource how : {PinnedSource::kReadInPlace, PinnedSource::kCopyFirst}) {
    CudaExecutorOptions options;
    options.executor.pinned_source = how;
    std::memset(dest.data(), 0, bytes);
    const Task tasks[] = {Swap(source.data(), dest.data(), bytes)};
    const absl::Status status = MadeExecutor(options)->Run(tasks);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(IsSwapped(dest.data(), source.data(), bytes));
  }
}

TEST(GpuMemory, MoreThanThereIsIsRefusedWithTheNumbersAndTheDeviceGoesOn) {
  const auto devices = CudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  CudaExecutorOptions options;
  options.memory_bytes = 2 * devices->front().memory_bytes;
  const absl::Status status = MakeCudaExecutor(0, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(std::to_string(options.memory_bytes)));
  EXPECT_FALSE(IsDeviceLost(status));
  std::vector<std::byte> source(1000), dest(1000);
  FillWithNumbers(source.data(), 1000);
  const Task tasks[] = {Swap(source.data(), dest.data(), 1000)};
  EXPECT_TRUE(MadeExecutor()->Run(tasks).ok());
  EXPECT_TRUE(IsSwapped(dest.data(), source.data(), 1000));
}

TEST(GpuMemory, ADeviceThatIsNotThereIsRefusedWithHowManyThereAre) {
  const auto devices = CudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  const int device = static_cast<int>(devices->size());
  const absl::Status status = MakeCudaExecutor(device).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("sees " + std::to_string(devices->size())));
}

TEST(GpuMemory, ARunThatIsLargerThanTheExecutorsMemoryIsDoneInParts) {
  CudaExecutorOptions options;
  options.memory_bytes = 1 << 16;
  const int64_t bytes = 1 << 20;
  std::vector<std::byte> source(bytes), dest(bytes);
  FillWithNumbers(source.data(), bytes);
  const Task tasks[] = {Swap(source.data(), dest.data(), bytes)};
  const absl::Status status = MadeExecutor(options)->Run(tasks);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(IsSwapped(dest.data(), source.data(), bytes));
}

TEST(GpuMemory, ARunOfWhichNoPartFitsIsRefusedAndWritesNothing) {
  CudaExecutorOptions options;
  options.memory_bytes = 64;
  const auto executor = MadeExecutor(options);
  std::vector<std::byte> source(1 << 20), dest(1 << 20, std::byte{7}), untouched = dest;
  const Task tasks[] = {Swap(source.data(), dest.data(), 1 << 20)};
  const absl::Status status = executor->Run(tasks);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(dest, untouched);
}

}  // namespace
}  // namespace cpshard
