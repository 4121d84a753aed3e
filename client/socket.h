// A connected socket, to be handed to gRPC.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cpshard {

// Connects to "host:port" or "unix:/path"; the caller owns the descriptor, which does not block.
// Unavailable: nobody listens there, or not within `patience`, or the name is not known;
// InvalidArgument: neither form, a path that is empty or too long.
absl::StatusOr<int> ConnectSocket(const std::string& address, absl::Duration patience);

}  // namespace cpshard
