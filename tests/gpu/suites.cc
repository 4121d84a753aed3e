// The suites of tests/exec on a GPU, in every way that memory reaches it, and what only a GPU has:
// memory of its own, pinned memory, allocations that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/exec/cuda.h"
#include "tests/exec/device_equality.h"

namespace cpshard {
namespace {

std::unique_ptr<Executor> Made(const CudaExecutorOptions& options) {
  auto executor = MakeCudaExecutor(0, options);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

ExecutorFactory Factory(std::string name, int64_t pinned_bytes, int64_t piece_bytes) {
  CudaExecutorOptions options;
  options.memory_bytes = 64 << 20;
  options.pinned_bytes = pinned_bytes;
  options.executor.piece_bytes = piece_bytes;
  return {std::move(name), [options] { return Made(options); }};
}

const auto kEveryWay = testing::Values(Factory("pageable", 32 << 20, 4096),
                                       Factory("pageable_through_little", 4096, 4096),
                                       Factory("small_pieces", 32 << 20, 100));

std::string NameOf(const testing::TestParamInfo<ExecutorFactory>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Gpu, ExecutorContract, kEveryWay, NameOf);
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceEquality, kEveryWay, NameOf);

// Two halves change places, from `source` to `dest`, wherever they lie.
CutTask Swap(const std::byte* source, std::byte* dest, int64_t bytes) {
  CutTask task;
  task.source = source;
  task.outer = 1;
  task.column_bytes = 1;
  task.dtype = DType::kU8;
  task.moves = Share({{{Move::Kind::kCopy, 0, 0, 0, bytes / 2, bytes / 2, 0},
                       {Move::Kind::kCopy, 0, 0, bytes / 2, 0, bytes / 2, 0}}});
  task.dests = {dest};
  task.dest_strides = {bytes};
  return task;
}

void FillWithNumbers(std::byte* memory, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i * i >> 3);
}

TEST(GpuMemory, TasksMayNameMemoryOfTheDeviceAndOfTheHostTogether) {
  const int64_t bytes = 1 << 20;
  const auto pool = MakeCudaMemoryPool(0, 4 * bytes);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const auto executor = Made({});
  ASSERT_NE(executor, nullptr);
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
  auto pool = MakePinnedPool(4 * bytes);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const Buffer source = *pool->Allocate(bytes), dest = *pool->Allocate(bytes);
  FillWithNumbers(source.data(), bytes);
  for (const PinnedSource how : {PinnedSource::kReadInPlace, PinnedSource::kCopyFirst}) {
    CudaExecutorOptions options;
    options.executor.pinned_source = how;
    const auto executor = Made(options);
    ASSERT_NE(executor, nullptr);
    std::memset(dest.data(), 0, bytes);
    const Task tasks[] = {Swap(source.data(), dest.data(), bytes)};
    const absl::Status status = executor->Run(tasks);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(std::memcmp(dest.data(), source.data() + bytes / 2, bytes / 2), 0);
    EXPECT_EQ(std::memcmp(dest.data() + bytes / 2, source.data(), bytes / 2), 0);
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
  EXPECT_FALSE(IsStickyCudaError(status));
  EXPECT_NE(Made({}), nullptr);
}

TEST(GpuMemory, ARunThatDoesNotFitIsRefusedAndWritesNothing) {
  CudaExecutorOptions options;
  options.memory_bytes = 1 << 16;
  const auto executor = Made(options);
  ASSERT_NE(executor, nullptr);
  std::vector<std::byte> source(1 << 20), dest(1 << 20, std::byte{7}), untouched = dest;
  const Task tasks[] = {Swap(source.data(), dest.data(), 1 << 20)};
  EXPECT_TRUE(absl::IsResourceExhausted(executor->Run(tasks)));
  EXPECT_EQ(dest, untouched);
}

}  // namespace
}  // namespace cpshard
