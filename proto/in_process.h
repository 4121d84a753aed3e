// Messages that cross the C interface (client/embedded/cpshard.h): serialized and of any size, for
// the tensors lie elsewhere.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/batch_totals.h"
#include "core/plan/plan.h"
#include "core/plan/shard_layout.h"
#include "proto/codec.h"
#include "proto/replies.h"

namespace cpshard {

// A PlanLayoutRequest whose entries are specs. Of the batch only the scalars are filled; a body,
// questions and the places of tensors are ignored.
// InvalidArgument: no message; what DecodePlanLayoutRequest refuses, but for places.
absl::StatusOr<Request> ReadPlanRequest(absl::string_view bytes, const Limits& limits);

// Whether the arrays of layouts stand in a message: without them a field that is present has its
// shape and no values, and runs are left out.
enum class Arrays { kValues, kShapes };

// The functions below: ResourceExhausted, the message would be over the 2 GiB of any message.

// A PlanLayoutReply. Documents that would take it over kMaxUnaryBytes are left out, with a notice.
absl::StatusOr<std::string> WritePlanReply(PlanSummary summary, Arrays arrays);

// The Shard of the rank that `layout` is of; offsets are 0.
absl::StatusOr<std::string> WriteShard(const ShardPlan& plan, const ShardLayout& layout,
                                       const std::optional<RankLoad>& load, Arrays arrays);

}  // namespace cpshard
