// Reads the configuration file of cpshardd. (Environment and flags: server/config.h.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cpshard {

// What one source of configuration states; absent = not stated there.
struct ConfigLayer {
  std::optional<std::vector<std::string>> listen;
  std::optional<int64_t> workers;
  std::optional<int64_t> queue;
  std::optional<int64_t> shutdown_seconds;
  std::optional<int64_t> pool_bytes;
  std::optional<int64_t> socket_mode;
  std::optional<int64_t> stall_seconds;
  std::optional<int64_t> max_inflight_bytes;
  std::optional<int64_t> max_inflight_batches;
  std::optional<int64_t> max_connections;
  std::optional<int64_t> session_bytes;
  std::optional<int64_t> replay_steps;
  std::optional<int64_t> ahead_steps;
  std::optional<int64_t> rank_timeout_seconds;
  std::optional<int64_t> max_groups;
  std::optional<int64_t> max_batch_bytes;
  std::optional<int64_t> max_tensors;
  std::optional<int64_t> max_ranks;
};

// From the JSON form of config.proto. InvalidArgument: not JSON, an unknown key, a wrong type.
absl::StatusOr<ConfigLayer> ConfigFromJson(absl::string_view json);

}  // namespace cpshard
