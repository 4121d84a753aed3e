// The plan of packed documents as one flat stream (contract 4.7), for the layouts that are it or
// add to it. Used by layouts/*.cc only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "core/plan/sharder.h"
#include "core/plan/spec.h"
#include "core/plan/value_view.h"

namespace cpshard {

// What layouts differ in.
struct ThdRules {
  std::string layout;  // its name, for messages
  int64_t num_chunks = 1;
  std::string indices;  // the name under which the indices of the local slots are emitted
  std::optional<DType> indices_dtype;  // absent: i32 where the stream is cut, else i64
  bool indices_of_chunks = false;      // emitted where there are several chunks too
  std::string kept;                    // entries of this name, and `kept`.*, survive chunks
};

// Streams whose values PlanThd reads.
std::vector<std::string> ThdNeeds(const BatchSpec& spec);

absl::StatusOr<ShardPlan> PlanThd(const ThdRules& rules, const SharedOptions& shared,
                                  const BatchSpec& spec, const PlanValues& values);

}  // namespace cpshard
