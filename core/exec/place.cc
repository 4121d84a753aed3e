#include "core/exec/place.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/exec/device/device_lost.h"
#include "core/exec/executor_set.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// A bounce block for every executor, of pinned memory beside that of the pool.
constexpr int64_t kBounceBytes = int64_t{16} << 20;

// Executors that are not one yet.
struct CudaPlace {
  std::vector<std::unique_ptr<Executor>> executors;
  std::shared_ptr<PinnedBlocks> blocks;
  std::string reason;
};

// A device may work and not tell what it is.
std::string Described(const CudaDevice& device) {
  if (device.memory_bytes == 0) return "a device that does not tell its name";
  return absl::StrCat(device.name, ", compute capability ", device.major, ".", device.minor);
}

absl::StatusOr<CudaPlace> MakeCudaPlace(const PlaceOptions& options) {
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, CudaDevices());
  if (options.cuda_memory_bytes / options.runs_at_once < kLeastCudaMemoryOfARun) {
    return absl::InvalidArgumentError(absl::StrCat("cuda_memory_bytes ", options.cuda_memory_bytes,
                                                   " is for ", options.runs_at_once,
                                                   " Runs at a time, each of which needs at least ",
                                                   kLeastCudaMemoryOfARun, " bytes of the device"));
  }
  CudaExecutorOptions each;
  each.memory_bytes = options.cuda_memory_bytes / options.runs_at_once;
  each.pinned_bytes = kBounceBytes;
  CudaPlace place;
  for (int64_t i = 0; i < options.runs_at_once; ++i) {
    CPSHARD_ASSIGN_OR_RETURN(auto executor, MakeCudaExecutor(options.cuda_device, each));
    place.executors.push_back(std::move(executor));
  }
  if (options.pinned_bytes > 0) {
    CPSHARD_ASSIGN_OR_RETURN(FixedPool pinned,
                             MakePinnedPool(options.cuda_device, options.pinned_bytes));
    place.blocks = std::make_shared<PinnedBlocks>(std::move(pinned));
  }
  place.reason = Described(devices[options.cuda_device]);
  return place;
}

Place MakeCpuPlace(std::string reason) { return {MakeCpuExecutor(), std::move(reason), nullptr}; }

}  // namespace

absl::StatusOr<Place> MakePlace(const PlaceOptions& options) {
  if (options.runs_at_once < 1 || options.pinned_bytes < 0 || options.cuda_memory_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("runs_at_once ", options.runs_at_once, ", pinned_bytes ", options.pinned_bytes,
                     ", cuda_memory_bytes ", options.cuda_memory_bytes, ": at least 1, 0 and 0"));
  }
  if (options.executor == ExecutorKind::kCpu) return MakeCpuPlace("as asked for");
  absl::StatusOr<CudaPlace> cuda = MakeCudaPlace(options);
  const bool may_be_the_cpu = options.executor == ExecutorKind::kAuto &&
                              !absl::IsInvalidArgument(cuda.status()) &&
                              !IsDeviceLost(cuda.status());
  if (!cuda.ok() && may_be_the_cpu) return MakeCpuPlace(std::string(cuda.status().message()));
  CPSHARD_RETURN_IF_ERROR(cuda.status());
  for (const auto& executor : cuda->executors) {
    if (options.try_out) CPSHARD_RETURN_IF_ERROR(options.try_out(*executor, cuda->blocks));
  }
  return Place{MakeExecutorSet(std::move(cuda->executors)), std::move(cuda->reason),
               std::move(cuda->blocks)};
}

}  // namespace cpshard
