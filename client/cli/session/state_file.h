// A TrainState as a file of JSON.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/rank.h"

namespace cpshard {

// nullopt: there is no such file. InvalidArgument, naming it: it holds something else.
absl::StatusOr<std::optional<TrainState>> ReadState(const std::string& path);

// The file is as before or complete, never half.
absl::Status WriteState(const std::string& path, const TrainState& state);

}  // namespace cpshard
