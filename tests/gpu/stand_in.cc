// A third file behind core/exec/cuda.h, and the anchors: an emulated device that has pools like a
// GPU's. gpu_check linked with it is rehearsed where there is no GPU, so that the one run on a
// machine that has one is not spent on finding mistakes of the check itself.
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/exec/cuda.h"
#include "core/exec/device/emulated.h"
#include "tests/gpu/anchors.h"

namespace cpshard {
namespace {

constexpr int64_t kMemoryBytes = int64_t{4} << 30;

// Memory of the pools: begin to end and what it is.
class Places {
 public:
  void Add(const std::byte* begin, int64_t size, Device::Reach reach) {
    absl::MutexLock lock(&mutex_);
    places_[begin] = {begin + size, reach};
  }
  void Remove(const std::byte* begin) {
    absl::MutexLock lock(&mutex_);
    places_.erase(begin);
  }
  Device::Reach Of(const std::byte* memory) {
    absl::MutexLock lock(&mutex_);
    auto next = places_.upper_bound(memory);
    if (next == places_.begin()) return Device::Reach::kNone;
    const auto& [end, reach] = std::prev(next)->second;
    return memory < end ? reach : Device::Reach::kNone;
  }

 private:
  absl::Mutex mutex_;
  std::map<const std::byte*, std::pair<const std::byte*, Device::Reach>> places_
      ABSL_GUARDED_BY(mutex_);
};

Places& AllPlaces() {
  static Places* const places = new Places;
  return *places;
}

class StandIn : public Device {
 public:
  explicit StandIn(const EmulatedDeviceOptions& options) : device_(MakeEmulatedDevice(options)) {}

  absl::string_view name() const override { return "cuda:0"; }
  absl::StatusOr<Reach> ReachOf(const std::byte* at) override {
    const auto own = device_->ReachOf(at);
    return own.ok() && *own == Reach::kNone ? AllPlaces().Of(at) : own;
  }
  Memory memory() override { return device_->memory(); }
  Memory pinned() override { return device_->pinned(); }
  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    return device_->CopyIn(device, pinned, bytes);
  }
  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    return device_->CopyOut(pinned, device, bytes);
  }
  absl::Status Mark(int number) override { return device_->Mark(number); }
  absl::Status Await(int number) override { return device_->Await(number); }
  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    return device_->Launch(rules, pieces, count);
  }
  absl::Status Finish() override { return device_->Finish(); }

 private:
  const std::unique_ptr<Device> device_;
};

absl::StatusOr<FixedPool> PoolOf(int64_t bytes, Device::Reach reach) {
  std::shared_ptr<std::byte> block(new (std::align_val_t{256}) std::byte[bytes], [](std::byte* at) {
    AllPlaces().Remove(at);
    operator delete[](at, std::align_val_t{256});
  });
  std::byte* begin = block.get();
  AllPlaces().Add(begin, bytes, reach);
  return FixedPool(std::move(block), begin, bytes);
}

double CopySeconds(std::byte* dest, const std::byte* source, int64_t bytes) {
  const auto begin = std::chrono::steady_clock::now();
  std::memcpy(dest, source, bytes);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> CudaDevices() {
  return std::vector<CudaDevice>{{"stand-in", 0, 0, kMemoryBytes}};
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int, const CudaExecutorOptions& options) {
  if (options.memory_bytes > kMemoryBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("stand-in: ", options.memory_bytes, " bytes"));
  }
  EmulatedDeviceOptions emulated;
  emulated.memory_bytes = options.memory_bytes;
  emulated.pinned_bytes = options.pinned_bytes;
  emulated.host_memory = Device::Reach::kNone;
  return std::make_unique<StandIn>(emulated);
}

absl::StatusOr<std::unique_ptr<Executor>> MakeCudaExecutor(int device,
                                                           CudaExecutorOptions options) {
  auto made = MakeCudaDevice(device, options);
  if (!made.ok()) return made.status();
  return MakeDeviceExecutor(*std::move(made), options.executor);
}

bool IsStickyCudaError(const absl::Status&) { return false; }

absl::StatusOr<FixedPool> MakePinnedPool(int64_t bytes) {
  return PoolOf(bytes, Device::Reach::kPinned);
}

absl::StatusOr<FixedPool> MakeCudaMemoryPool(int, int64_t bytes) {
  return PoolOf(bytes, Device::Reach::kOwn);
}

double DeviceToDeviceSeconds(std::byte* dest, const std::byte* source, int64_t bytes, int) {
  return CopySeconds(dest, source, bytes);
}

double PinnedToDeviceSeconds(std::byte* dest, const std::byte* pinned, int64_t bytes, int) {
  return CopySeconds(dest, pinned, bytes);
}

}  // namespace cpshard
