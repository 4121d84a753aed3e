#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/printable.h"
#include "client/cli/session/server.h"
#include "client/cli/session/status_table.h"
#include "client/client.h"
#include "core/plan/status_macros.h"
#include "proto/json.h"

namespace cpshard {
namespace {

constexpr int64_t kColumnsOfAFile = 1 << 20;  // nothing is cut off or broken
constexpr char kClearScreen[] = "\033[H\033[J";

struct Arguments {
  std::string server, group;
  bool json = false;
  std::optional<double> watch_seconds;
};

struct Screen {
  int64_t rows = 24, columns = 80;
};

// nullopt: what is printed goes elsewhere.
std::optional<Screen> TerminalSize() {
  if (isatty(STDOUT_FILENO) == 0) return std::nullopt;
  Screen screen;
  winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen = {size.ws_row, size.ws_col};
  }
  return screen;
}

absl::StatusOr<std::vector<GroupView>> Ask(Client& client, const Arguments& arguments) {
  if (arguments.group.empty()) return client.ListGroups();
  CPSHARD_ASSIGN_OR_RETURN(GroupView view, client.DumpGroup(arguments.group));
  return std::vector<GroupView>{std::move(view)};
}

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Until a signal ends the process. A server that is away may come back, and so may the group.
absl::Status Watch(Client& client, const Arguments& arguments) {
  while (true) {
    const Screen screen = TerminalSize().value_or(Screen());
    const absl::StatusOr<std::vector<GroupView>> groups = Ask(client, arguments);
    const std::string text =
        groups.ok() ? StatusTable(*groups, screen.columns)
                    : absl::StrCat(absl::StatusCodeToString(groups.status().code()), ": ",
                                   OneLine(std::string(groups.status().message())), "\n");
    Print(absl::StrCat(kClearScreen, FirstLines(text, screen.rows - 1)));
    absl::SleepFor(absl::Seconds(*arguments.watch_seconds));
  }
}

absl::Status ShowStatus(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(const auto client,
                           Client::Connect(arguments.server, {.deadline = absl::Seconds(10)}));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<GroupView> groups, Ask(*client, arguments));
  const std::optional<Screen> screen = TerminalSize();
  if (arguments.watch_seconds && screen) return Watch(*client, arguments);
  Print(arguments.json ? GroupsToJson(groups) + "\n"
                       : StatusTable(groups, screen ? screen->columns : kColumnsOfAFile));
  return absl::OkStatus();
}

}  // namespace

void AddStatusCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand("status", "how far loaders and ranks are, and who waits");
  auto arguments = std::make_shared<Arguments>();
  DeclareServer(*command, arguments->server);
  DeclareGroup(*command, arguments->group)->description("this group alone [default: all]");
  CLI::Option* json =
      command->add_flag("--json", arguments->json, "as JSON, a ListGroupsReply of the wire");
  command
      ->add_option("--watch", arguments->watch_seconds,
                   "in a terminal: again and again, until Ctrl-C; a file or pipe gets it once")
      ->check(CLI::Range(0.1, 1e6).description(""))
      ->type_name("SECONDS")
      ->excludes(json);
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{ShowStatus(*arguments)}; }; });
}

}  // namespace cpshard
