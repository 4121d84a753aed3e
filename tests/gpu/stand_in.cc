// A third file behind core/exec/cuda.h: an emulated device that has pools like a
// GPU's. gpu_check linked with it is rehearsed where there is no GPU, so that the one run on a
// machine that has one is not spent on finding mistakes of the check itself.
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/exec/cuda.h"
#include "core/exec/cuda_error.h"
#include "core/exec/device/device_lost.h"
#include "core/exec/device/emulated.h"
#include "tests/exec/wrapped_device.h"
#include "tests/gpu/stand_in.h"

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

// What the environment has the devices do wrong.
// CPSHARD_STAND_IN_LOST=FILE: they are lost once there is such a file.
bool AreLost() {
  static const char* const file = std::getenv("CPSHARD_STAND_IN_LOST");
  return file != nullptr && access(file, F_OK) == 0;
}

// CPSHARD_STAND_IN_HANG=FILE: a launch takes the file away, and never returns.
void HangIfTold() {
  static const char* const file = std::getenv("CPSHARD_STAND_IN_HANG");
  if (file == nullptr || unlink(file) != 0) return;
  while (true) pause();
}

// CPSHARD_STAND_IN_WRONG=1: the last piece of a launch is not moved.
bool AreWrong() {
  static const bool wrong = std::getenv("CPSHARD_STAND_IN_WRONG") != nullptr;
  return wrong;
}

struct StandIns {
  absl::Mutex mutex;
  std::set<Device*> devices ABSL_GUARDED_BY(mutex);
  DeviceTraffic* traffic ABSL_GUARDED_BY(mutex) = nullptr;
};

StandIns& AllStandIns() {
  static StandIns* const all = new StandIns;
  return *all;
}

EmulatedDeviceOptions Counted(EmulatedDeviceOptions options) {
  const absl::MutexLock lock(&AllStandIns().mutex);
  options.traffic = AllStandIns().traffic;
  return options;
}

class StandIn : public WrappedDevice {
 public:
  explicit StandIn(const EmulatedDeviceOptions& options)
      : WrappedDevice(MakeEmulatedDevice(Counted(options))) {
    const absl::MutexLock lock(&AllStandIns().mutex);
    AllStandIns().devices.insert(this);
  }
  ~StandIn() override {
    const absl::MutexLock lock(&AllStandIns().mutex);
    AllStandIns().devices.erase(this);
  }

  absl::string_view name() const override { return "cuda:0"; }
  absl::StatusOr<Reach> ReachOf(const std::byte* at) override {
    const auto own = WrappedDevice::ReachOf(at);
    return own.ok() && *own == Reach::kNone ? AllPlaces().Of(at) : own;
  }
  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    HangIfTold();
    if (AreLost()) {
      return DeviceLost(absl::InternalError(
          absl::StrCat("launch of ", count, " pieces: error 719 (stand-in: lost)")));
    }
    return WrappedDevice::Launch(rules, pieces, AreWrong() ? count - 1 : count);
  }
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

// CPSHARD_STAND_IN_LOSE_AFTER=3: every device is lost at its fourth launch.
int64_t LoseAfterLaunches() {
  const char* text = std::getenv("CPSHARD_STAND_IN_LOSE_AFTER");
  return text == nullptr ? -1 : std::atoll(text);
}

}  // namespace

// CPSHARD_STAND_IN_ABSENT: there is no device, and why; CPSHARD_STAND_IN_UNUSABLE: there is one
// that cannot be used.
absl::StatusOr<std::vector<CudaDevice>> CudaDevices() {
  if (const char* why = std::getenv("CPSHARD_STAND_IN_ABSENT")) {
    return NoDevice(absl::FailedPreconditionError(why));
  }
  if (const char* why = std::getenv("CPSHARD_STAND_IN_UNUSABLE")) {
    return absl::FailedPreconditionError(why);
  }
  return std::vector<CudaDevice>{{"stand-in", 0, 0, kMemoryBytes}};
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int device,
                                                       const CudaExecutorOptions& options) {
  if (device != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no CUDA device ", device, ": this process sees 1, numbered from 0 (stand-in)"));
  }
  if (options.memory_bytes > kMemoryBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("stand-in: ", options.memory_bytes, " bytes"));
  }
  if (AreLost()) return DeviceLost(absl::InternalError("opening: error 719 (stand-in: lost)"));
  EmulatedDeviceOptions emulated;
  emulated.memory_bytes = options.memory_bytes;
  emulated.pinned_bytes = options.pinned_bytes;
  emulated.host_memory = Device::Reach::kNone;
  emulated.lose_after_launches = LoseAfterLaunches();
  return std::make_unique<StandIn>(emulated);
}

absl::StatusOr<std::unique_ptr<Executor>> MakeCudaExecutor(int device,
                                                           CudaExecutorOptions options) {
  auto made = MakeCudaDevice(device, options);
  if (!made.ok()) return made.status();
  return MakeDeviceExecutor(*std::move(made), options.executor);
}

absl::StatusOr<FixedPool> MakePinnedPool(int, int64_t bytes) {
  return PoolOf(bytes, Device::Reach::kPinned);
}

absl::StatusOr<FixedPool> MakeCudaMemoryPool(int, int64_t bytes) {
  return PoolOf(bytes, Device::Reach::kOwn);
}

absl::Status SettleStandIns() {
  absl::Status status;
  const absl::MutexLock lock(&AllStandIns().mutex);
  for (Device* device : AllStandIns().devices) status.Update(device->Finish());
  return status;
}

void CountStandIns(DeviceTraffic* traffic) {
  const absl::MutexLock lock(&AllStandIns().mutex);
  AllStandIns().traffic = traffic;
}

}  // namespace cpshard
