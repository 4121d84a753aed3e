// Where a `cpshard pull` is, as a file of JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/rank.h"

namespace cpshard {

// The file is that of a TrainState with one field more, "pulled_steps", which may be missing.
struct PullState {
  TrainState train;
  int64_t pulled_steps = 0;  // by all processes that had the file
};

// nullopt: there is no such file. InvalidArgument, naming it: it holds something else.
absl::StatusOr<std::optional<PullState>> ReadState(const std::string& path);

// The file is as before or complete, never half.
absl::Status WriteState(const std::string& path, const PullState& state);

}  // namespace cpshard
