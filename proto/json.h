// JSON forms of what the command line reads and writes: protobuf's mapping, field names as in the
// .proto files, defaults printed; 64-bit integers are strings, and numbers are read too.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/shard_layout.h"
#include "proto/replies.h"
#include "proto/session_views.h"

namespace cpshard {

// layouts.json: an array with one ShardLayout per rank.
std::string LayoutsToJson(const std::vector<ShardLayout>& layouts);

// InvalidArgument: not a JSON array of ShardLayout messages.
absl::StatusOr<std::vector<ShardLayout>> LayoutsFromJson(absl::string_view json);

// A ListGroupsReply.
std::string GroupsToJson(const std::vector<GroupView>& groups);

// A PlanLayoutReply.
absl::StatusOr<std::string> SummaryToJson(const PlanSummary& summary);

}  // namespace cpshard
