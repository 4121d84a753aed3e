#include "proto/config.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/config.pb.h"
#include "proto/strict_json.h"

namespace cpshard {

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
  const config::Limits& limits = message.limits();
  if (limits.has_max_batch_bytes()) layer.max_batch_bytes = limits.max_batch_bytes();
  if (limits.has_max_tensors()) layer.max_tensors = limits.max_tensors();
  if (limits.has_max_ranks()) layer.max_ranks = limits.max_ranks();
  return layer;
}

}  // namespace cpshard
