// Configuration of cpshardd: a file, the environment, flags - the later winning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/exec/place.h"
#include "core/plan/spec.h"
#include "proto/config.h"
#include "proto/replies.h"

namespace cpshard {

struct ServerOptions {
  // "host:port" (port 0 = any free one) or "unix:/path".
  std::vector<std::string> listen = {"127.0.0.1:7070"};
  int64_t workers = 2;  // threads that plan and shard
  int64_t queue = 64;   // calls that may wait for one; more: RESOURCE_EXHAUSTED
  absl::Duration shutdown_grace = absl::Seconds(30);
  int64_t pool_bytes = int64_t{8} << 30;
  int64_t socket_mode = 0660;                // of unix sockets
  absl::Duration stall = absl::Seconds(30);  // a call that makes no progress is cut off
  int64_t max_connections = 1024;
  StreamLimits stream_limits;
  std::optional<int64_t> session_bytes;  // of pool_bytes; absent: half
  SessionLimits session_limits;          // but for session_bytes
  std::vector<DeclaredGroup> groups;     // known before anybody has opened them
  Limits limits;
  PlaceOptions place;  // but for runs_at_once
};

// Where its server shards: as many Runs at a time as workers can make, but not over 4.
PlaceOptions PlaceOf(const ServerOptions& options);

enum class Action { kServe, kCheckOnly, kPrintVersion, kPrintHelp };

struct CommandLine {
  Action action = Action::kServe;
  ServerOptions options;
  std::string text;  // for kPrintHelp
};

// Reads --config FILE (JSON, see proto/cpshard/config.proto), CPSHARD_* and the flags.
// InvalidArgument, naming the source and the value: an unknown key or flag, a value out of range;
// NotFound: the file cannot be read.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

}  // namespace cpshard
