// How long a command waits for a server.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace cpshard {

// For so many bytes of batches on their way: a minute, and their way there and back at 20 MB/s.
inline absl::Duration DeadlineFor(int64_t bytes) {
  constexpr double kBytesPerSecond = 20e6;
  return absl::Minutes(1) + absl::Seconds(2 * static_cast<double>(bytes) / kBytesPerSecond);
}

}  // namespace cpshard
