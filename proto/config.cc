#include "proto/config.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/config.pb.h"
#include "proto/options.h"
#include "proto/session_checks.h"
#include "proto/strict_json.h"

namespace cpshard {
namespace {

// Held to what an OpenSession of it would be.
absl::StatusOr<DeclaredGroup> DeclaredBy(const config::Group& message) {
  const Options options(message.options());
  DeclaredGroup group{.group = message.group(),
                      .cp_size = message.cp_size(),
                      .options = options.ToBytes(),
                      .fingerprint = message.fingerprint()};
  if (message.has_executor()) {
    CPSHARD_ASSIGN_OR_RETURN(group.executor, ParseExecutorKind(message.executor()));
  }
  OpenSession open{.group = group.group,
                   .cp_size = group.cp_size,
                   .fingerprint = group.fingerprint,
                   .reader = "any"};
  for (const config::DataStream& from : message.streams()) {
    if (from.num_loaders() < 1 || from.num_loaders() > kMaxCount) {
      return absl::InvalidArgumentError(absl::StrCat("num_loaders of stream '", from.name(),
                                                     "' is ", from.num_loaders(), "; 1 to ",
                                                     kMaxCount, " are possible"));
    }
    group.streams.push_back({from.name(), from.max_step_bytes(), from.num_loaders()});
    open.streams.push_back({.name = from.name(), .max_step_bytes = from.max_step_bytes()});
  }
  if (open.streams.empty()) return absl::InvalidArgumentError("it has no streams");
  CPSHARD_RETURN_IF_ERROR(Check(open));
  CPSHARD_RETURN_IF_ERROR(options.MakeSharder().status());
  return group;
}

absl::StatusOr<std::vector<DeclaredGroup>> GroupsOf(const config::ServerConfig& message) {
  std::vector<DeclaredGroup> groups;
  std::set<std::string> names;
  for (const config::Group& from : message.groups()) {
    absl::StatusOr<DeclaredGroup> group = DeclaredBy(from);
    if (group.ok() && !names.insert(from.group()).second) {
      group = absl::InvalidArgumentError("it is declared twice");
    }
    if (!group.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("configuration: group '", from.group(), "': ", group.status().message()));
    }
    groups.push_back(*std::move(group));
  }
  return groups;
}

}  // namespace

absl::StatusOr<ConfigLayer> ConfigFromJson(absl::string_view json) {
  CPSHARD_RETURN_IF_ERROR(CheckStrictJson(json, "configuration"));
  config::ServerConfig message;
  const auto status =
      google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &message);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "configuration: ", std::string(status.message().data(), status.message().size())));
  }
  ConfigLayer layer;
  // A list without entries and no list are one thing to protobuf, but not to who wrote the file.
  const bool states_listen = nlohmann::json::parse(json.begin(), json.end()).contains("listen");
  if (states_listen) layer.listen.emplace(message.listen().begin(), message.listen().end());
  if (message.has_workers()) layer.workers = message.workers();
  if (message.has_queue()) layer.queue = message.queue();
  if (message.has_shutdown_seconds()) layer.shutdown_seconds = message.shutdown_seconds();
  if (message.has_pool_bytes()) layer.pool_bytes = message.pool_bytes();
  if (message.has_socket_mode()) layer.socket_mode = message.socket_mode();
  if (message.has_stall_seconds()) layer.stall_seconds = message.stall_seconds();
  if (message.has_max_inflight_bytes()) layer.max_inflight_bytes = message.max_inflight_bytes();
  if (message.has_max_inflight_batches()) {
    layer.max_inflight_batches = message.max_inflight_batches();
  }
  if (message.has_max_connections()) layer.max_connections = message.max_connections();
  if (message.has_session_bytes()) layer.session_bytes = message.session_bytes();
  if (message.has_replay_steps()) layer.replay_steps = message.replay_steps();
  if (message.has_ahead_steps()) layer.ahead_steps = message.ahead_steps();
  if (message.has_rank_timeout_seconds()) {
    layer.rank_timeout_seconds = message.rank_timeout_seconds();
  }
  if (message.has_max_groups()) layer.max_groups = message.max_groups();
  if (message.has_executor()) layer.executor = message.executor();
  if (message.has_cuda_device()) layer.cuda_device = message.cuda_device();
  if (message.has_cuda_memory_bytes()) layer.cuda_memory_bytes = message.cuda_memory_bytes();
  if (message.has_pinned_bytes()) layer.pinned_bytes = message.pinned_bytes();
  if (message.groups_size() > 0) {
    CPSHARD_ASSIGN_OR_RETURN(layer.groups, GroupsOf(message));
  }
  const config::Limits& limits = message.limits();
  if (limits.has_max_batch_bytes()) layer.max_batch_bytes = limits.max_batch_bytes();
  if (limits.has_max_tensors()) layer.max_tensors = limits.max_tensors();
  if (limits.has_max_ranks()) layer.max_ranks = limits.max_ranks();
  return layer;
}

}  // namespace cpshard
