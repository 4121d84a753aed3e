// What the product answered for a case: every rank's shard, or the status that it refused with.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"
#include "core/plan/shard_layout.h"

namespace cpshard::conformance {

struct RankAnswer {
  Batch batch;
  ShardLayout layout;  // no layout reported = fields 1 to 5 absent
  Batch state;         // what a layout keeps beside its outputs; it does not travel
};

using Answer = absl::StatusOr<std::vector<RankAnswer>>;  // by rank

// A line for people, and digests of all that was answered.
std::string Describe(const Answer& answer);

}  // namespace cpshard::conformance
