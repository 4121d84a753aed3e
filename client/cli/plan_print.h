// What `cpshard plan` prints of a plan: for people, so short where ranks and documents are many
// (--json has all).
#pragma once

#include <string>
#include <vector>

#include "proto/replies.h"

namespace cpshard {

// The layout rank by rank, how evenly it spreads the work, streams and notices.
std::string PlanText(const PlanSummary& summary);

// What padding costs documents of these lengths. Precondition: summary.pad_costs.
std::string PadText(const PlanSummary& summary, const std::vector<int64_t>& lengths);

}  // namespace cpshard
