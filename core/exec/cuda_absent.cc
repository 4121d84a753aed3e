// Built without CUDA.
#include "core/exec/cuda.h"

namespace cpshard {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError(
      "this program was built without CUDA: configure it with -DCPSHARD_CUDA=ON, or use the CPU");
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> CudaDevices() { return Absent(); }

absl::StatusOr<std::unique_ptr<Executor>> MakeCudaExecutor(int, CudaExecutorOptions) {
  return Absent();
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int, const CudaExecutorOptions&) {
  return Absent();
}

absl::StatusOr<FixedPool> MakePinnedPool(int, int64_t) { return Absent(); }

absl::StatusOr<FixedPool> MakeCudaMemoryPool(int, int64_t) { return Absent(); }

}  // namespace cpshard
