// The executor for one GPU of NVIDIA's, and memory for it. What stands behind this header is one of
// two files: cuda.cu where the toolkit was found, else cuda_absent.cc, which answers Unimplemented.
// A program with the former starts without a driver and without a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/exec/device/device_executor.h"
#include "core/exec/device/fixed_pool.h"
#include "core/exec/executor.h"

namespace cpshard {

struct CudaDevice {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;  // all of it
};

// The devices that this process sees, device i at place i; at least one.
// Unimplemented: built without CUDA. FailedPrecondition, naming the versions of driver and runtime:
// no driver, one older than the runtime, no device. Internal: anything else.
absl::StatusOr<std::vector<CudaDevice>> CudaDevices();

struct CudaExecutorOptions {
  // Of the device, for the tables of one Run and for copies of what the device does not reach.
  int64_t memory_bytes = int64_t{256} << 20;

  // Of the host, pinned, to bounce pageable memory.
  int64_t pinned_bytes = int64_t{32} << 20;

  // A cudaStream_t of the caller's for the launches, which then come after what is enqueued on it;
  // null: one of the executor's own. Must outlive the executor.
  void* stream = nullptr;

  DeviceExecutorOptions executor;
};

// An executor on `device` with two queues of its own, called "cuda:0". Tasks may name memory of the
// device, pinned memory and pageable memory. Errors of Run are those of MakeDeviceExecutor and
// Internal, naming the call and CUDA's number; see IsStickyCudaError.
// InvalidArgument: no such device, with how many there are; sizes of nothing. ResourceExhausted:
// its memory, or pinned memory. Else as CudaDevices.
absl::StatusOr<std::unique_ptr<Executor>> MakeCudaExecutor(int device,
                                                           CudaExecutorOptions options = {});

// The device under such an executor, for who measures it; options.executor says nothing. Errors as
// above.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int device,
                                                       const CudaExecutorOptions& options = {});

// Whether the error leaves the process without a usable device until it is started again. Kept when
// the status is passed on.
bool IsStickyCudaError(const absl::Status& status);

// Pools of fixed size: pinned memory of the host that every device reaches, and memory of a device.
// Both give their memory back when the pool and all its buffers are gone.
// ResourceExhausted, naming the sizes; else as CudaDevices.
absl::StatusOr<FixedPool> MakePinnedPool(int64_t bytes);
absl::StatusOr<FixedPool> MakeCudaMemoryPool(int device, int64_t bytes);

}  // namespace cpshard
