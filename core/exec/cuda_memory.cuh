// Memory for a device, and what kind of memory an address is of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/exec/cuda_context.cuh"
#include "core/exec/device/device.h"

namespace cpshard {

// Memory of the context's device, or pinned memory of the host that every device reaches. May be
// given back from any thread; the context stays for as long.
// ResourceExhausted, with the sizes; else as CudaStatus.
absl::StatusOr<std::shared_ptr<std::byte>> DeviceBlock(
    const std::shared_ptr<const CudaContext>& context, int64_t bytes);
absl::StatusOr<std::shared_ptr<std::byte>> PinnedBlock(
    const std::shared_ptr<const CudaContext>& context, int64_t bytes);

// What cudaPointerGetAttributes says of memory in a block that was made here, without asking it;
// false, and nothing is written: in no such block.
bool DescribeBlock(const std::byte* memory, cudaPointerAttributes& attributes);

// How `device` gets at memory of which the runtime says this.
// InvalidArgument: memory of another device.
absl::StatusOr<Device::Reach> CudaReachOf(int device, const std::byte* memory,
                                          const cudaPointerAttributes& attributes);

}  // namespace cpshard
