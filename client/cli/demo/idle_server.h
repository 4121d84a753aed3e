// What a server holds when nobody is left.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cpshard::demo {

// All processes of the demo have gone, the killed ones too: the server must have let go of
// everything, which it is given some seconds for. Prints how many buffers are out.
// Internal: it has not.
absl::Status CheckNothingIsHeld(const std::string& address);

}  // namespace cpshard::demo
