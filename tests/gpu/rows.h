// The measurements of gpu_check: how fast the kernel is beside a plain copy of the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cpshard {

struct GpuRow {
  std::string what;
  double gb_per_s = 0, anchor_gb_per_s = 0;  // 1e9 bytes of shard a second
  double goal = 0;                           // of gb_per_s / anchor_gb_per_s; 0 = none
  double ratio() const { return gb_per_s / anchor_gb_per_s; }
};

struct GpuRowOptions {
  int64_t shrink = 1;  // so many times smaller jobs, for a rehearsal
  int rounds = 20;     // the best of which counts
};

// Takes some seconds. Everything lies in device memory, or the sources in pinned memory.
absl::StatusOr<std::vector<GpuRow>> MeasureGpu(const GpuRowOptions& options);

}  // namespace cpshard
