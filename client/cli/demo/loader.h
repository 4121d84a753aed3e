// The work of one loader of the demo, in a process of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/demo/layouts.h"

namespace cpshard::demo {

// Everything by which a loader comes to the same batches as the process that started it.
struct LoaderTask {
  std::string server;  // address
  std::string layout;  // the name of one of Layouts()
  int64_t loader = 0, loaders = 1;
  int64_t done = 0;     // of its share, reported by a process that was killed
  int64_t batches = 0;  // of all loaders
  std::vector<std::string> files;
  size_t max_bytes = 0;  // of text
};

inline constexpr int64_t kMaxInFlight = 8;  // batches of one loader

// Reads and packs the text, then shards its share (every batch with index % loaders == loader) in
// rounds of up to kMaxInFlight: all batches of a round are handed to the stream, then their answers
// are awaited, then checked. The clock runs from the first Submit of a round to its last answer.
// Writes the lines of report.h to `out`, in the order of its batches.
// Errors: the server's status, with the batch; FailedPrecondition: the text has changed meanwhile,
// or nobody reads `out`; InvalidArgument: an unknown layout.
absl::Status RunLoader(const LoaderTask& task, int out);

}  // namespace cpshard::demo
