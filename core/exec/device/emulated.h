// A device that is not there: the bodies of the kernels run on the CPU, lane by lane, over memory
// of the host. For tests of everything but the GPU itself, and for counting what a GPU would do.
#pragma once

#include <cstdint>
#include <memory>

#include "core/exec/device/device_executor.h"

namespace cpshard {

// What the warps of all Runs did. A transaction is a 32-byte sector that an access of a warp
// touches; an access is one instruction that its lanes carry out together.
struct DeviceTraffic {
  int64_t launches = 0, pieces = 0;
  int64_t bytes_read = 0, bytes_written = 0;  // by the lanes
  int64_t reads = 0, writes = 0;              // accesses of warps
  int64_t read_sectors = 0, written_sectors = 0;
  int64_t misaligned = 0;                 // accesses that a GPU would refuse
  int64_t copied_in = 0, copied_out = 0;  // bytes between host and device, tables included
};

struct EmulatedDeviceOptions {
  int64_t memory_bytes = int64_t{64} << 20;
  int64_t pinned_bytes = int64_t{1} << 20;

  // What the launches get at: all memory, or nothing but the device's own, so that all is copied.
  Device::Reach host_memory = Device::Reach::kOwn;

  DeviceExecutorOptions executor;

  // So many launches are carried out; at the next one the device is lost: that one and all that is
  // under way write nothing, and every call from then on says so (IsDeviceLost). Negative: never.
  int64_t lose_after_launches = -1;

  // Counted where given; slow. Must outlive the executor; not to be read during a Run.
  DeviceTraffic* traffic = nullptr;
};

// Copies and launches are done as late as a device might do them: when they are waited for.
std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options);

// An executor over such a device, called "emulated-device".
std::unique_ptr<Executor> MakeEmulatedDeviceExecutor(const EmulatedDeviceOptions& options = {});

}  // namespace cpshard
