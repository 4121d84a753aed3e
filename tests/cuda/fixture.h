// Tests of the executor for a GPU over a CUDA runtime that is not there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/exec/cuda.h"
#include "core/exec/device/device_lost.h"
#include "tests/cuda/fake_runtime.h"

namespace cpshard {

class OnFakeCuda : public testing::Test {
 protected:
  OnFakeCuda() { fake_cuda::Reset(); }
  ~OnFakeCuda() override { EXPECT_THAT(fake_cuda::Misuses(), testing::IsEmpty()); }
};

inline CudaExecutorOptions Small() {
  CudaExecutorOptions options;
  options.memory_bytes = 1 << 20;
  options.pinned_bytes = 16 << 10;
  return options;
}

inline std::unique_ptr<Executor> Made(int device, const CudaExecutorOptions& options = Small()) {
  absl::StatusOr<std::unique_ptr<Executor>> made = MakeCudaExecutor(device, options);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

// A copy between places of some memory that a test chooses.
class Copy {
 public:
  Copy(std::byte* source, std::byte* dest, int64_t bytes) : dest_(dest), bytes_(bytes) {
    std::fill_n(source, bytes, std::byte{1});
    std::fill_n(dest, bytes, std::byte{9});
    task_.source = source;
    task_.outer = 1;
    task_.column_bytes = 1;
    task_.dtype = DType::kU8;
    task_.moves = std::make_shared<const std::vector<Moves>>(
        std::vector<Moves>{{{Move::Kind::kCopy, 0, 0, 0, 0, bytes, 0}}});
    task_.dests = {dest};
    task_.dest_strides = {bytes};
  }

  absl::Status RunOn(Executor& executor) const {
    const Task tasks[] = {task_};
    return executor.Run(tasks);
  }

  bool HasWritten(int value) const {
    return std::all_of(dest_, dest_ + bytes_,
                       [=](std::byte b) { return std::to_integer<int>(b) == value; });
  }
  bool IsUntouched() const { return HasWritten(9); }

 private:
  std::byte* const dest_;
  const int64_t bytes_;
  CutTask task_;
};

// In ordinary memory.
struct PageableCopy {
  explicit PageableCopy(int64_t bytes)
      : source(bytes), dest(bytes), copy(source.data(), dest.data(), bytes) {}
  std::vector<std::byte> source, dest;
  Copy copy;
};

// In memory of a device.
struct DeviceCopy {
  DeviceCopy(int device, int64_t bytes)
      : source(fake_cuda::DeviceMemory(device, bytes)),
        copy(source, fake_cuda::DeviceMemory(device, bytes), bytes) {}
  std::byte* source;
  Copy copy;
};

}  // namespace cpshard
