// The executor for one GPU of NVIDIA's, and memory for it. What stands behind this header is one of
// two files: cuda.cu where the toolkit was found, else cuda_absent.cc, which answers Unimplemented.
// A program with the former starts without a driver and without a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/exec/device/device_executor.h"
#include "core/exec/device/fixed_pool.h"
#include "core/exec/executor.h"

namespace cpshard {

struct CudaDevice {
  std::string name;          // "NVIDIA H200"; of one that does not answer, why: the rest is 0 then
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;  // all of it
};

// The devices that this process sees, device i at place i; at least one. Uses none of them.
// Unimplemented: built without CUDA. FailedPrecondition, naming the versions of driver and runtime:
// no driver, one older than the runtime, no device, one that this process cannot have (another has
// it alone; a service of the driver's is not up; after fork); IsNoDevice (cuda_error.h) says
// whether that is because the machine has none. Internal: anything else.
absl::StatusOr<std::vector<CudaDevice>> CudaDevices();

struct CudaExecutorOptions {
  // Of the device, for the tables of one Run and for copies of what the device does not reach.
  int64_t memory_bytes = int64_t{256} << 20;

  // Of the host, pinned, to bounce pageable memory.
  int64_t pinned_bytes = int64_t{32} << 20;

  // A cudaStream_t of the caller's, null for his default stream: launches, and copies of his memory
  // by the device, come after what is on it when Run is called, and what is put on it afterwards
  // comes after them. Host memory that launches do not read in place the CPU may read in Run.
  // Needed until the last Run has returned, not for the destructor. Absent: a stream of the
  // executor's own, which waits for nobody's.
  std::optional<void*> stream;

  DeviceExecutorOptions executor;
};

// An executor on `device` with two queues of its own, called "cuda:0". Tasks may name memory of the
// device, pinned memory and pageable memory; none that was registered to be read only, as a dest.
// No other device is used, and the calling thread keeps the one it has. Run returns what
// MakeDeviceExecutor says, and
//   FailedPrecondition: the stream is being captured into a CUDA graph. Nothing was touched, and
//     the capture goes on.
//   Internal, with the call and CUDA's number: the device has failed, at this Run or, where that
//     has returned early, at one before. IsDeviceLost (core/exec/device/device_lost.h) says whether
//     it is lost, as it is too when what is under way cannot be waited for; else a later Run may
//     succeed.
// MakeCudaExecutor itself:
//   InvalidArgument: no such device, with how many there are; sizes of nothing, pieces too.
//   ResourceExhausted: its memory, or pinned memory, with the sizes.
//   FailedPrecondition: as CudaDevices; no machine code for the device; a capture, as above.
//   Internal: anything else; IsDeviceLost where the process had lost the device before.
absl::StatusOr<std::unique_ptr<Executor>> MakeCudaExecutor(int device,
                                                           CudaExecutorOptions options = {});

// The device under such an executor, for who measures it; options.executor says nothing. Errors as
// above.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int device,
                                                       const CudaExecutorOptions& options = {});

// Pools of fixed size: pinned memory of the host, made through `device` and reached by every one,
// and memory of a device. Both give their memory back when the pool and all its buffers are gone.
// InvalidArgument: no such device. ResourceExhausted, naming the sizes. Else as MakeCudaExecutor.
absl::StatusOr<FixedPool> MakePinnedPool(int device, int64_t bytes);
absl::StatusOr<FixedPool> MakeCudaMemoryPool(int device, int64_t bytes);

}  // namespace cpshard
