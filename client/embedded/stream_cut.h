// How a stream of a plan comes of one tensor of the batch, for callers that cut it themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/index_map.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"

namespace cpshard::embedded {

// As cpshard_cut (cpshard.h). The pointers are the plan's.
struct TensorCut {
  const ViewOf* view = nullptr;
  const StreamPlan* stream = nullptr;
  int64_t rows = 1;
  int64_t chunks = 1;
  std::vector<Run> runs;  // slot <- source column; of one row, chunk after chunk
};

// Precondition: the plan is of this spec. Errors as cpshard_plan_cut.
absl::StatusOr<TensorCut> CutOfTensor(const ShardPlan& plan, const BatchSpec& spec,
                                      absl::string_view stream, int64_t rank, int64_t row);

}  // namespace cpshard::embedded
