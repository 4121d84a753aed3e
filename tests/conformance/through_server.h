// Targets in a server. What links this links gRPC.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/conformance/target.h"

namespace cpshard::conformance {

// Through the unary call. Errors: those of Client::Connect, and of a first call that waits for the
// server.
absl::StatusOr<Target> ThroughServer(absl::string_view address);

// Through one stream. Errors as above.
absl::StatusOr<Target> ThroughStream(absl::string_view address);

}  // namespace cpshard::conformance
