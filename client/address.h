// Where a server is: the one grammar that all of the client takes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cpshard {

// "host:port", "[v6]:port", or "unix:/path" (also "unix:///path", and a relative "unix:path").
struct Address {
  std::string text;  // as it was given

  std::string path;  // of a unix socket; empty: host and port
  std::string host;  // without brackets
  std::string port;

  // InvalidArgument, with the reason: no host or no port, a port that is not 1 ... 65535, a path
  // that is empty or longer than the system takes, any other scheme.
  static absl::StatusOr<Address> Parse(absl::string_view text);

  bool is_unix() const { return !path.empty(); }

  // As gRPC's resolvers take it.
  std::string GrpcTarget() const;
};

}  // namespace cpshard
