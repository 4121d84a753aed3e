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
  // Bytes that one warp moves, at least 1. Less: a longer table; more: long runs hold fewer warps.
  int64_t piece_bytes = 4096;
  PinnedSource pinned_source = PinnedSource::kReadInPlace;

  // A Run whose tasks name no memory but the device's own returns when all of it is enqueued: who
  // uses what it writes has to come after it on the device. Such a Run waits for the table of the
  // last but one before it to be on the device, no more; the executor's destructor waits for all.
  bool return_early = false;
};

// Thread-safe: one Run at a time. Memory that the device does not reach is brought to it and back.
// What does not fit the device's memory, or has so many runs of bytes that the host would need much
// memory to list them (see kMostStrips), is done in parts, one after the other: tasks, then outer
// indices, moves, columns and elements of one. Run returns
//   ResourceExhausted: a single element with its table may not fit, and never will (NeverFits).
//     Nothing was written.
//   InvalidArgument: memory of another device; a source or a destination whose first byte and whose
//     last are memory of two kinds. Nothing was written. And moves of a task that meet inside an
//     element: nothing was written where the Run is one part; in parts that write one after the
//     other such moves may do no harm, or stop the Run when others have been written.
//   what the device says: what was written is undefined. Of a Run that has returned early a later
//     one may say it.
std::unique_ptr<Executor> MakeDeviceExecutor(std::unique_ptr<Device> device,
                                             DeviceExecutorOptions options = {});

}  // namespace cpshard
