// A job's launches alone, with tables that lie on the device already: what the kernel takes.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/exec/device/device.h"
#include "core/exec/device/work_table.h"
#include "tests/gpu/ground.h"

namespace cpshard {

struct LaunchOptions {
  int64_t piece_bytes = 4096;
  size_t places = 1;  // in one launch: whether it is its size or the kernel that takes long
};

// One table a launch, in the device's own memory; the walk keeps the device alive and ends as
// PlainCopies does. ResourceExhausted, with the sizes: they do not fit it. Else as EnqueueCopy.
absl::StatusOr<Walk> LaunchesOf(const Job& job, const Places& places, const LaunchOptions& options,
                                std::shared_ptr<Device> device);

// What the host does before one of them: the table of `count` places from number `first` on.
absl::StatusOr<WorkTable> TableOfPlaces(const Job& job, const Places& places, size_t first,
                                        size_t count, int64_t piece_bytes, int64_t memory_bytes);

}  // namespace cpshard
