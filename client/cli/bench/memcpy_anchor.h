// What memory allows: the anchor of every row of the benchmark.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/batch/buffer.h"

namespace cpshard::bench {

// Bytes per second of one thread that copies blocks of `size` bytes with libc's memcpy, each byte
// counted once. Blocks are resident and rotate over 256 MB, so that both ends are cold.
// ResourceExhausted: the pool.
absl::StatusOr<double> MemcpyBytesPerSecond(int64_t size, BufferPool& pool);

}  // namespace cpshard::bench
