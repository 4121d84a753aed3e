// What memory allows: the anchor of every row of the benchmark.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace cpshard::bench {

// More than caches hold: what rotates over so much is cold when its turn comes.
inline constexpr int64_t kColdBytes = 256'000'000;

// Bytes per second of one thread that copies blocks of `size` bytes with libc's memcpy, each byte
// counted once. Blocks are resident and rotate over kColdBytes, so that both ends are cold.
// ResourceExhausted: the system has no memory for two blocks.
absl::StatusOr<double> MemcpyBytesPerSecond(int64_t size);

}  // namespace cpshard::bench
