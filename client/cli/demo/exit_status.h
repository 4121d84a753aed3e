// How a process of the demo ended.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cpshard::demo {

// Of a process that ended by itself: OK for exit status 0, else its own status with its words.
// Internal: it was ended by a signal. `wait_status`: as waitpid tells it.
absl::Status StatusOfEnd(const std::string& name, int wait_status, const std::string& words);

}  // namespace cpshard::demo
