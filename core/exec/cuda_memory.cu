#include "core/exec/cuda_memory.cuh"

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace cpshard {
namespace {

constexpr int kHost = -1;  // in place of a device

// The blocks that were made here, and of which device they are.
class Blocks {
 public:
  void Add(const std::byte* begin, int64_t bytes, int device) {
    absl::MutexLock lock(&mutex_);
    blocks_[begin] = {begin + bytes, device};
  }
  void Remove(const std::byte* begin) {
    absl::MutexLock lock(&mutex_);
    blocks_.erase(begin);
  }
  std::optional<int> DeviceOf(const std::byte* memory) const {
    absl::ReaderMutexLock lock(&mutex_);
    const auto next = blocks_.upper_bound(memory);
    if (next == blocks_.begin()) return std::nullopt;
    const auto& [end, device] = std::prev(next)->second;
    return memory < end ? std::optional<int>(device) : std::nullopt;
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<const std::byte*, std::pair<const std::byte*, int>> blocks_ ABSL_GUARDED_BY(mutex_);
};

Blocks& AllBlocks() {
  static Blocks* const blocks = new Blocks;
  return *blocks;
}

// "; 12 of 34 bytes are free" where the device says so.
std::string FreeText() {
  size_t free = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  IgnoreCudaError(error);
  return error == cudaSuccess ? absl::StrCat("; ", free, " of ", total, " bytes are free") : "";
}

// Of an allocation of `bytes` of `what` that failed.
absl::Status Refusal(absl::string_view call, cudaError_t error, int64_t bytes, std::string what) {
  const absl::Status status = CudaStatus(call, error);
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), " for ", bytes, " bytes of ", what));
}

// To be given back by `free` on the context's device.
std::shared_ptr<std::byte> Owned(const std::shared_ptr<const CudaContext>& context, void* block,
                                 cudaError_t (*free)(void*)) {
  return {static_cast<std::byte*>(block), [context, free](std::byte* at) {
            AllBlocks().Remove(at);
            const OnDevice on(*context);
            if (on.error() == cudaSuccess) IgnoreCudaError(free(at));
          }};
}

}  // namespace

absl::StatusOr<std::shared_ptr<std::byte>> DeviceBlock(
    const std::shared_ptr<const CudaContext>& context, int64_t bytes) {
  const OnDevice on(*context);
  CPSHARD_RETURN_IF_ERROR(CudaStatus("cuCtxPushCurrent", on.error()));
  void* block = nullptr;
  if (const cudaError_t error = cudaMalloc(&block, bytes); error != cudaSuccess) {
    return Refusal("cudaMalloc", error, bytes,
                   absl::StrCat("device ", context->device(), FreeText()));
  }
  std::shared_ptr<std::byte> owned = Owned(context, block, cudaFree);
  AllBlocks().Add(owned.get(), bytes, context->device());
  return owned;
}

absl::StatusOr<std::shared_ptr<std::byte>> PinnedBlock(
    const std::shared_ptr<const CudaContext>& context, int64_t bytes) {
  const OnDevice on(*context);
  CPSHARD_RETURN_IF_ERROR(CudaStatus("cuCtxPushCurrent", on.error()));
  void* block = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&block, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error != cudaSuccess) return Refusal("cudaHostAlloc", error, bytes, "pinned host memory");
  std::shared_ptr<std::byte> owned = Owned(context, block, cudaFreeHost);
  cudaPointerAttributes attributes = {};
  CPSHARD_CUDA_CALL(cudaPointerGetAttributes, &attributes, block);
  if (attributes.devicePointer == block) AllBlocks().Add(owned.get(), bytes, kHost);
  return owned;
}

bool DescribeBlock(const std::byte* memory, cudaPointerAttributes& attributes) {
  const std::optional<int> made_for = AllBlocks().DeviceOf(memory);
  if (!made_for.has_value()) return false;
  attributes.type = *made_for == kHost ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes.device = *made_for;
  attributes.hostPointer = attributes.devicePointer = const_cast<std::byte*>(memory);
  return true;
}

absl::StatusOr<Device::Reach> CudaReachOf(int device, const std::byte* memory,
                                          const cudaPointerAttributes& attributes) {
  switch (attributes.type) {
    case cudaMemoryTypeDevice:
      if (attributes.device == device) return Device::Reach::kOwn;
      return absl::InvalidArgumentError(
          absl::StrCat("memory of device ", attributes.device, " in a task for device ", device));
    case cudaMemoryTypeManaged:
      return Device::Reach::kOwn;
    case cudaMemoryTypeHost:
      // Under another address on the device it would have to be translated: copied instead.
      return attributes.devicePointer == memory ? Device::Reach::kPinned : Device::Reach::kNone;
    default:
      return Device::Reach::kNone;
  }
}

}  // namespace cpshard
