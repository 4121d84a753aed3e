// What the warps of the measured jobs do to memory, counted on an emulated device: no GPU is
// needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cpshard {

// All but the last two per byte of shard.
struct TrafficRow {
  std::string what;
  double read = 0, written = 0;                  // bytes that the lanes ask for
  double read_sectors = 0, written_sectors = 0;  // bytes of the 32-byte sectors they touch
  double table = 0;                              // bytes of the work table
  double read_transactions = 0, written_transactions = 0;  // sectors per access of a warp
};

absl::StatusOr<std::vector<TrafficRow>> CountTraffic(int64_t shrink);

}  // namespace cpshard
