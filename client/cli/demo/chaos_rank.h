// One rank process of `cpshard demo --chaos`.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/cli/demo/chaos_report.h"
#include "client/cli/demo/chaos_work.h"

namespace cpshard::demo {

struct RankTask {
  int64_t rank = 0;
  std::string state;              // of the last line of the process before; empty: there was none
  int64_t step_milliseconds = 0;  // that "training" takes
};

// Reads all steps, passes of validation in between where they are due, and ends the session.
// Compares every shard, element by element, with what the contract makes of the batch, and the
// totals with those of the batch; a difference is reported, not an error.
// Errors: those of Rank; Internal: the server has another end or another step than the work.
absl::Status RunChaosRank(const ChaosWork& work, const RankTask& task,
                          const ChaosReporter& reporter);

}  // namespace cpshard::demo
