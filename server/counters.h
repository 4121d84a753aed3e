// What the server counts. Read by GetServerInfo and the last log line.
#pragma once

#include <atomic>
#include <cstdint>

namespace cpshard {

// Thread-safe. Gauges go up and down, the others only up.
struct ServerCounters {
  std::atomic<int64_t> streams = 0;  // gauge
  std::atomic<int64_t> batches = 0;  // gauge: on streams, not answered yet
  std::atomic<int64_t> batches_sharded = 0;
  std::atomic<int64_t> batches_refused = 0;
  std::atomic<int64_t> streams_stalled = 0;
};

}  // namespace cpshard
