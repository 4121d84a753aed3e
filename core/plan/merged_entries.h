// Entries that models' hooks merge into a batch (contract 3.3), as streams and scalars of its plan.
// All of them are held whole. Each takes the place of an entry of that name. Where the plan is that
// of chunks for one rank, tensors are not added, as chunks drop them (contract 5.6).
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"
#include "core/plan/value_view.h"

namespace cpshard {

// bool [T], true where input_ids is `id`; T = all elements of input_ids. Precondition: spec has
// input_ids. InvalidArgument: they are no integers.
absl::Status AddTokenMask(const BatchSpec& spec, absl::string_view name, int64_t id,
                          ShardPlan& plan);

// [n, 2] of height and width becomes [n, 3] with 1 before them; another last dim is kept.
// InvalidArgument: `grid` has no axes, or ends in 2 and has other than two.
absl::Status AddPromotedGrid(const TensorSpec& grid, absl::string_view name, ShardPlan& plan);

// The longest of `lengths` above 0, or 0, as an integer. InvalidArgument: it is over `window`.
absl::Status AddLongestDocument(const ValueView& lengths, std::optional<int64_t> window,
                                absl::string_view name, ShardPlan& plan);

// The stream `source` once more. Unimplemented: the batch has none, and the model would make it.
absl::Status AddSentMask(const BatchSpec& spec, absl::string_view source, absl::string_view name,
                         ShardPlan& plan);

}  // namespace cpshard
