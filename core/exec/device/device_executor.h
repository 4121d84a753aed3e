// The executor for a device: makes the work list, brings what the device does not reach, launches.
#pragma once

#include <cstdint>
#include <memory>

#include "core/exec/device/device.h"
#include "core/exec/executor.h"

namespace cpshard {

// How a launch gets at pinned host memory.
enum class PinnedSource {
  kReadInPlace,  // over the bus, every byte once
  kCopyFirst,    // by the copy engine, into the device's memory
};

struct DeviceExecutorOptions {
  // Bytes that one warp moves. Less: a longer table; more: long runs hold fewer warps.
  int64_t piece_bytes = 4096;
  PinnedSource pinned_source = PinnedSource::kReadInPlace;
};

// Thread-safe: one Run at a time. Memory that the device does not reach is brought to it and back.
// Run returns
//   ResourceExhausted: table and copies do not fit the device's memory, or a launch has too many
//     pieces. Nothing was written.
//   InvalidArgument: memory of another device; moves of a task that meet inside an element. As
//   above. what the device says: what was written is undefined.
std::unique_ptr<Executor> MakeDeviceExecutor(std::unique_ptr<Device> device,
                                             DeviceExecutorOptions options = {});

}  // namespace cpshard
