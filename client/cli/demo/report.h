// What a loader of the demo tells the process that started it: one JSON object a line.
//
//   {"in_flight": 8}
//   {"layout": "round_robin", "batch": 6, "real_tokens": 32760, ..., "seconds": 0.0013}
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cpshard::demo {

// A round of batches was handed to the stream; none of them is answered yet.
struct RoundBegun {
  int64_t in_flight = 0;  // batches
  friend bool operator==(const RoundBegun&, const RoundBegun&) = default;
};

// One batch was sharded and checked.
struct BatchReport {
  std::string layout;
  int64_t batch = 0;  // counted over all loaders
  int64_t real_tokens = 0;
  int64_t columns = 0;                  // of all shards, padding included
  int64_t bytes = 0;                    // sent
  std::vector<int64_t> tokens_of_rank;  // real ones
  double seconds = 0;                   // of the loader's clock
  std::vector<std::string> equal;       // streams that came back, gathered and trimmed, as expected
  std::string difference;               // the first of any kind; empty = none
  friend bool operator==(const BatchReport&, const BatchReport&) = default;
};

using LoaderLine = std::variant<RoundBegun, BatchReport>;

// Without a line break.
std::string ToLine(const LoaderLine& line);

// InvalidArgument, with the line: not what ToLine writes.
absl::StatusOr<LoaderLine> ParseLine(absl::string_view text);

}  // namespace cpshard::demo
