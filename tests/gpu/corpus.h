// The golden corpus (tests/golden) on the first GPU.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cpshard {

struct CorpusOutcome {
  std::string memory;  // that the executor was given: "pageable", "pinned" or "device"
  bool passed = false;
  std::string
      text;  // how many cases passed, failed and were skipped; the first failures, one a line
};

// Runs every case of the folder's .jsonl files in this process with the executor of the first GPU,
// once for each kind of memory, and compares what the cases compare. NotFound: no such folder, or
// no such file in it.
absl::StatusOr<std::vector<CorpusOutcome>> RunCorpus(const std::string& folder);

}  // namespace cpshard
