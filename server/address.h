// Addresses to listen on: "host:port" (port 0 = any free one) or "unix:/path".
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cpshard {

// The path of "unix:/path" and "unix:///path"; nullopt for other addresses.
std::optional<std::string> UnixPath(absl::string_view address);

// InvalidArgument: neither of the two forms, a port beyond 65535, a unix path that is empty or
// longer than the system takes. (gRPC itself would take more forms, and wrap the port.)
absl::Status CheckAddress(const std::string& address);

}  // namespace cpshard
