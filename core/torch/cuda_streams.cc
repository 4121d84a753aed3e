#include "core/torch/cuda_streams.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/plan/status_macros.h"
#include "core/torch/stream_handle.h"

namespace cpshard {
namespace {

// Work tables alone lie there: 32 bytes for each run of each row, and for each 4 KB of a long one.
// Half of either holds that of a million tokens of four streams in runs of 64; more is done in
// parts, for which the host waits.
constexpr int64_t kMemoryBytes = int64_t{4} << 20;

// Unimplemented where the device refuses, and so will stay: no machine code for it, a driver older
// than the runtime. What a stream of nobody's, with next to no memory, is made on refuses for the
// stream's sake alone, which is being captured.
absl::Status WhyNoExecutor(int device, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(status.message(), ". cpshard's tables lie beside torch's memory: ",
                     "torch.cuda.empty_cache() gives back what torch holds and does not use"));
  }
  if (!absl::IsFailedPrecondition(status)) return status;
  CudaExecutorOptions least;
  least.memory_bytes = least.pinned_bytes = 128;
  if (!absl::IsFailedPrecondition(MakeCudaDevice(device, least).status())) return status;
  return absl::UnimplementedError(status.message());
}

absl::StatusOr<std::unique_ptr<Executor>> MakeExecutor(const DeviceStream& stream) {
  CudaExecutorOptions options;
  options.memory_bytes = kMemoryBytes;
  options.pinned_bytes = kMemoryBytes;
  options.executor.return_early = true;
  options.stream = stream.handle;
  auto executor = MakeCudaExecutor(stream.device, options);
  if (!executor.ok()) return WhyNoExecutor(stream.device, executor.status());
  return executor;
}

// For as long as the process: at its exit the driver may be gone before the executors.
StreamExecutors& Executors() {
  static auto* const executors = new StreamExecutors(MakeExecutor);
  return *executors;
}

}  // namespace

DeviceStream CurrentStream(c10::Device device) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return {stream.device_index(), HandleOf(stream)};
}

absl::Status RunOnCurrentStream(c10::Device device, absl::Span<const Task> tasks) {
  CPSHARD_RETURN_IF_ERROR(StreamsTellTheirHandles());
  return Executors().Run(CurrentStream(device), tasks);
}

std::string CudaObstacle() {
  absl::Status status = StreamsTellTheirHandles();
  if (status.ok()) status = CudaDevices().status();
  return std::string(status.message());
}

}  // namespace cpshard
