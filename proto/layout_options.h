// The layouts of the wire: for each member of the oneof, what makes its Sharder. Used inside proto/
// only.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/plan/sharder.h"
#include "cpshard/v1/options.pb.h"

namespace cpshard {

struct LayoutOption {
  v1::ShardingOptions::LayoutCase option;
  absl::StatusOr<Sharder> (*make)(const v1::ShardingOptions& message, SharedOptions shared);
};

// In the order of the wire. A new layout is one entry.
absl::Span<const LayoutOption> LayoutOptions();

// Of the member `model`, which must be set.
absl::StatusOr<Sharder> MakeModel(const v1::ShardingOptions& message, SharedOptions shared);

}  // namespace cpshard
