// Tasks over CUDA tensors: in the order of torch's current stream, by cpshard's executor for a GPU.
// Nothing here includes a header of CUDA or needs torch's CUDA libraries: the same object goes with
// a torch without CUDA.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/exec/task.h"
#include "core/torch/stream_executors.h"

namespace cpshard {

// torch's current stream of the device, in this thread. c10::Error: torch has no such device.
DeviceStream CurrentStream(c10::Device device);

// Enqueues `tasks` over memory of `device` on its current stream; what the tasks name has to stay
// until they are done there, as with any kernel. Thread-safe.
// Unimplemented: built without CUDA, or against a torch before 2.11; for this device no machine
// code, or a driver older than the runtime. ResourceExhausted, naming the sizes. InvalidArgument:
// memory of another device. FailedPrecondition: the stream is being captured. Else as
// MakeCudaExecutor.
absl::Status RunOnCurrentStream(c10::Device device, absl::Span<const Task> tasks);

// Why no task can be run on any GPU here; empty: there is one, which may refuse all the same. Asks
// the driver, so not for a process that has no use for a GPU and forks others that do.
std::string CudaObstacle();

}  // namespace cpshard
