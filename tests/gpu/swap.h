// What the suites for a GPU share: an executor that is there, and a task that is easy to check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/exec/cuda.h"

namespace cpshard {

// On the first device. Where it cannot be made the test fails, and so do all Runs of what is
// returned.
std::unique_ptr<Executor> MadeExecutor(const CudaExecutorOptions& options = {});

// All its Runs return `status`.
std::unique_ptr<Executor> RefusingExecutor(absl::Status status);

// The two halves of `bytes`, an even number, change places on their way from source to dest.
CutTask Swap(const std::byte* source, std::byte* dest, int64_t bytes);

// Numbers that differ between the halves.
void FillWithNumbers(std::byte* memory, int64_t bytes);

// Whether dest holds the source with its halves swapped.
bool IsSwapped(const std::byte* dest, const std::byte* source, int64_t bytes);

}  // namespace cpshard
