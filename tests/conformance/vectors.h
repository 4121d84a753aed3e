// Files beside the cases: magi_vectors.json, a list of dispatch partitions with explicit masks.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cpshard::conformance {

// The names of the vectors. InvalidArgument: not a list of them, or a field is missing or of
// another type; the message names vector and field.
absl::StatusOr<std::vector<std::string>> ReadVectorNames(absl::string_view text);

}  // namespace cpshard::conformance
