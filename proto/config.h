// Reads the configuration file of cpshardd. (Environment and flags: server/config.h.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/exec/executor_kind.h"

namespace cpshard {

struct DeclaredStream {
  std::string name;
  int64_t max_step_bytes = 0;  // of the batches of a step, as readers name it
  int64_t num_loaders = 1;
};

// A group that the configuration names: what its loaders push is taken before it is opened.
struct DeclaredGroup {
  std::string group;
  int64_t cp_size = 1;
  std::string options;      // serialised
  std::string fingerprint;  // of the data set; empty: any
  ExecutorKind executor = ExecutorKind::kAuto;
  std::vector<DeclaredStream> streams;
};

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
  std::optional<std::vector<DeclaredGroup>> groups;
  std::optional<std::string> executor;
  std::optional<int64_t> cuda_device;
  std::optional<int64_t> cuda_memory_bytes;
  std::optional<int64_t> pinned_bytes;
};

// From the JSON form of config.proto. InvalidArgument: not JSON, an unknown key, a wrong type; a
// group that no session could open.
absl::StatusOr<ConfigLayer> ConfigFromJson(absl::string_view json);

}  // namespace cpshard
