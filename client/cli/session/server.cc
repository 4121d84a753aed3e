#include "client/cli/session/server.h"

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/printable.h"
#include "client/client.h"
#include "core/plan/status_macros.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

std::string CheckNotEmpty(const std::string& text) {
  return text.empty() ? "the value is empty" : "";
}

}  // namespace

void DeclareServer(CLI::App& command, std::string& server) {
  command.add_option("--server", server, "the cpshardd, host:port or unix:/path")
      ->required()
      ->check(CLI::Validator(CheckNotEmpty, "ADDR"))
      ->group("Server");
}

CLI::Option* DeclareGroup(CLI::App& command, std::string& group) {
  return command.add_option("--group", group, "the CP group, one name for its loaders and ranks")
      ->check(CLI::Validator(CheckNotEmpty, "G"))
      ->group("Session");
}

void DeclareDataStream(CLI::App& command, std::string& stream) {
  command.add_option("--stream", stream, "the data stream of the group")
      ->check(CLI::Validator(CheckNotEmpty, "NAME"))
      ->capture_default_str()
      ->group("Session");
}

absl::StatusOr<ServerInfo> AskServer(const std::string& server) {
  CPSHARD_ASSIGN_OR_RETURN(const auto client,
                           Client::Connect(server, {.deadline = absl::Seconds(10)}));
  CPSHARD_ASSIGN_OR_RETURN(ServerInfo info, client->GetServerInfo());
  if (info.session_limits.session_bytes > 0) return info;
  return absl::FailedPreconditionError(
      absl::StrCat(server, " was started without sessions; its --session-bytes is 0"));
}

std::function<void(const absl::Status&)> SayFirstLoss(const std::string& server) {
  return [server, said = std::make_shared<std::atomic<bool>>(false)](const absl::Status& why) {
    if (said->exchange(true)) return;
    const ErrorDetails details = DetailsOf(why).value_or(ErrorDetails());
    std::fprintf(stderr,
                 "notice: %s: the connection to %s is lost, and is made again: %s; of further ones "
                 "nothing is said\n",
                 details.reason.empty() ? "CONNECTION_LOST" : OneLine(details.reason).c_str(),
                 server.c_str(), OneLine(std::string(why.message())).c_str());
  };
}

}  // namespace cpshard
