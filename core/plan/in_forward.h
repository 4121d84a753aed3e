// In-forward sharding (contract 4.6): one tensor that a model makes in its forward pass, padded and
// cut as the batch was that left its primary whole.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "core/plan/element.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"

namespace cpshard {

enum class InForwardLayout { kRoundRobin, kContiguous };

struct InForwardOptions {
  InForwardLayout layout = InForwardLayout::kRoundRobin;
  int64_t axis = 1;  // negative counts from the end
  Number pad_value = int64_t{0};
  int64_t pad_multiple = 1;  // of kContiguous; below 2 acts as 2
};

// The plan of that one stream, of any rank and dtype. Without a mesh and at cp_size 1 it stays as
// it is, unpadded. The local indices of a rank are partition[rank] of the layout. InvalidArgument:
// no such axis, cp_size below 1, a length beyond int64, a pad that the dtype cannot hold.
absl::StatusOr<ShardPlan> PlanInForward(const TensorSpec& tensor, const InForwardOptions& options,
                                        std::optional<int64_t> cp_size);

}  // namespace cpshard
