// Reads a text file as a whole.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace cpshard {

// NotFound, naming the file: it is absent, a folder, or not readable.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace cpshard
