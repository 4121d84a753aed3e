#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/demo/layouts.h"
#include "client/cli/demo/loader_group.h"
#include "client/cli/demo/pack.h"
#include "client/cli/demo/table.h"
#include "client/cli/demo/text.h"
#include "client/cli/server_process.h"
#include "client/client.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

struct Arguments {
  std::vector<std::string> files;
  size_t max_bytes = size_t{4} << 20;
  int64_t loaders = 4;
  std::optional<int64_t> kill_loader;
};

// Loader 0's task for every layout; says what the batches are. The text is let go.
absl::StatusOr<std::vector<LoaderTask>> MakeTasks(const Arguments& arguments,
                                                  const std::string& server) {
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Document> documents,
                           ReadDocuments(arguments.files, arguments.max_bytes));
  const std::vector<DemoLayout> layouts = Layouts();
  PrintInput(documents, layouts);
  std::vector<LoaderTask> tasks;
  for (const DemoLayout& layout : layouts) {
    tasks.push_back({.server = server,
                     .layout = layout.name,
                     .loaders = arguments.loaders,
                     .batches = Packing(documents, layout.pack).num_batches(),
                     .files = arguments.files,
                     .max_bytes = arguments.max_bytes});
  }
  return tasks;
}

absl::StatusOr<Figures> RunLayout(const LoaderTask& task, std::optional<int64_t> kill,
                                  ServerProcess& server) {
  const Progress progress(task.layout);
  const auto check_server = [&server] { return server.CheckAlive(); };
  const auto show = [&progress](const Tally& tally) { progress.Show(tally); };
  const auto say = [&progress](const std::string& line) {
    progress.Clear();
    std::printf("%s\n", line.c_str());
  };
  return LoaderGroup(task, kill, {check_server, show, say}).Run();
}

// All loaders have gone, the killed ones too: the server must have let go of everything.
absl::Status CheckNothingIsHeld(Client& client) {
  const absl::Time give_up = absl::Now() + absl::Seconds(5);
  while (true) {
    CPSHARD_ASSIGN_OR_RETURN(const ServerInfo info, client.GetServerInfo());
    const Counters& now = info.counters;
    const bool idle = now.buffers_out == 0 && now.streams == 0 && now.batches == 0;
    if (idle || absl::Now() > give_up) {
      std::printf("buffers out: %lld\n", static_cast<long long>(now.buffers_out));
      if (idle) return absl::OkStatus();
      return absl::InternalError(absl::StrCat(
          "the server still holds ", now.buffers_out, " buffers of ", now.bytes_out, " bytes, ",
          now.streams, " streams and ", now.batches, " batches, and no loader is left"));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

absl::StatusOr<bool> RunDemo(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(ServerProcess server, ServerProcess::Start());
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<LoaderTask> tasks,
                           MakeTasks(arguments, server.address()));
  CPSHARD_ASSIGN_OR_RETURN(const ServerInfo info, server.WaitUntilReady());
  PrintServer(info, server.address());
  PrintHeading();
  bool different = false;
  std::optional<int64_t> kill = arguments.kill_loader;
  for (const LoaderTask& task : tasks) {
    CPSHARD_ASSIGN_OR_RETURN(const Figures figures,
                             RunLayout(task, std::exchange(kill, std::nullopt), server));
    PrintLayout(task.layout, arguments.loaders, figures);
    different = different || !figures.difference.empty();
  }
  CPSHARD_ASSIGN_OR_RETURN(const auto client, Client::Connect(server.address()));
  CPSHARD_RETURN_IF_ERROR(CheckNothingIsHeld(*client));
  CPSHARD_RETURN_IF_ERROR(server.Stop(absl::Seconds(10)));
  return different;
}

}  // namespace
}  // namespace cpshard::demo

namespace cpshard {

void AddDemoCommand(CLI::App& app, Command& run) {
  CLI::App* command =
      app.add_subcommand("demo", "shard real text through a real server and prove the result");
  auto arguments = std::make_shared<demo::Arguments>();
  command->add_option("files", arguments->files, "text files [default: text found on the machine]");
  command->add_option("--max-bytes", arguments->max_bytes, "read at most this much text")
      ->check(CLI::Range(size_t{1}, size_t{1} << 30))
      ->type_name("BYTES")
      ->capture_default_str();
  command->add_option("--loaders", arguments->loaders, "loader processes")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--kill-loader", arguments->kill_loader,
                   "kill this loader half-way through the first layout, batches in flight")
      ->check(CLI::Range(0, 63))
      ->type_name("N");
  command->callback([arguments, &run] {
    run = [arguments] {
      std::setvbuf(stdout, nullptr, _IOLBF, 0);
      const absl::StatusOr<bool> different = demo::RunDemo(*arguments);
      return Outcome{different.status(), different.ok() && *different};
    };
  });
}

}  // namespace cpshard
