// What the commands of sessions have in common: the server, and that it is there.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/replies.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cpshard {

// --server, required.
void DeclareServer(CLI::App& command, std::string& server);

// --group and --stream.
CLI::Option* DeclareGroup(CLI::App& command, std::string& group);
void DeclareDataStream(CLI::App& command, std::string& stream);

// What the server is. A session waits for its server, but who types a command wants to hear at once
// that there is none. Unavailable; FailedPrecondition: it has no sessions.
absl::StatusOr<ServerInfo> AskServer(const std::string& server);

// Says once, as a notice, that the connection was lost and why: a session goes on by itself, for as
// long as it takes. Thread-safe.
std::function<void(const absl::Status&)> SayFirstLoss(const std::string& server);

}  // namespace cpshard
