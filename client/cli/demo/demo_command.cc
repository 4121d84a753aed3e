#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/demo/chaos.h"
#include "client/cli/demo/chaos_table.h"
#include "client/cli/demo/idle_server.h"
#include "client/cli/demo/layouts.h"
#include "client/cli/demo/loader_group.h"
#include "client/cli/demo/pack.h"
#include "client/cli/demo/table.h"
#include "client/cli/demo/text.h"
#include "client/cli/server_process.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

struct Arguments {
  std::vector<std::string> files;
  size_t max_bytes = size_t{4} << 20;
  int64_t loaders = 4;
  std::optional<int64_t> kill_loader;
  bool chaos = false;
  int64_t steps = 40;
  std::optional<uint64_t> seed;
  std::string executor;
};

// Of the server: its own choice is what was asked for.
std::vector<std::string> ServerFlags(const Arguments& arguments,
                                     std::vector<std::string> flags = {}) {
  if (!arguments.executor.empty()) {
    flags.push_back(absl::StrCat("--executor=", arguments.executor));
  }
  return flags;
}

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

absl::StatusOr<bool> RunDemo(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(ServerProcess server, ServerProcess::Start({}, ServerFlags(arguments)));
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
  CPSHARD_RETURN_IF_ERROR(CheckNothingIsHeld(server.address()));
  CPSHARD_RETURN_IF_ERROR(server.Stop(absl::Seconds(10)));
  return different;
}

// The names of the files that were read: then the processes need not look for text, too.
absl::StatusOr<ChaosWork> WorkOf(const Arguments& arguments, const std::string& server) {
  ChaosWork work{.server = server, .loaders = arguments.loaders, .steps = arguments.steps};
  work.max_bytes = std::min(arguments.max_bytes, work.max_bytes);
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Document> documents,
                           ReadDocuments(arguments.files, work.max_bytes));
  for (const Document& document : documents) work.files.push_back(document.name);
  return work;
}

absl::StatusOr<bool> RunChaos(const Arguments& arguments) {
  const uint64_t seed = arguments.seed.value_or(std::random_device()());
  CPSHARD_ASSIGN_OR_RETURN(
      ServerProcess server,
      ServerProcess::Start(
          {}, ServerFlags(arguments, {absl::StrCat("--ahead-steps=", kChaosAheadSteps)})));
  CPSHARD_ASSIGN_OR_RETURN(const ChaosWork work, WorkOf(arguments, server.address()));
  CPSHARD_ASSIGN_OR_RETURN(const auto batches, ChaosBatches::Read(work));
  CPSHARD_ASSIGN_OR_RETURN(std::vector<ExpectedStep> expected, ShardInProcess(work, *batches));
  CPSHARD_ASSIGN_OR_RETURN(const ServerInfo info, server.WaitUntilReady());
  PrintServer(info, server.address());
  PrintChaos(work, seed);
  ChaosRun run(work, DrawKills(seed, work.steps, work.loaders, kCpSize),
               ChaosTally(std::move(expected), kCpSize), server);
  CPSHARD_ASSIGN_OR_RETURN(const ChaosFigures figures, run.Run());
  PrintChaosFigures(work, figures);
  CPSHARD_RETURN_IF_ERROR(CheckNothingIsHeld(server.address()));
  CPSHARD_RETURN_IF_ERROR(server.Stop(absl::Seconds(10)));
  return !figures.difference.empty();
}

void AddChaosOptions(CLI::App& command, Arguments& arguments) {
  CLI::Option* chaos = command.add_flag(
      "--chaos", arguments.chaos,
      "loaders and ranks as processes; a loader, a rank\nand the server are killed meanwhile");
  chaos->excludes("--kill-loader");
  command.add_option("--steps", arguments.steps, "of every rank")
      ->check(CLI::Range(kMinChaosSteps, int64_t{100'000}))
      ->type_name("N")
      ->capture_default_str()
      ->needs(chaos);
  command.add_option("--seed", arguments.seed, "who is killed when [default: another every time]")
      ->type_name("S")
      ->needs(chaos);
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
  DeclareExecutor(*command, arguments->executor, "who shards at the server [default: its choice]");
  demo::AddChaosOptions(*command, *arguments);
  command->callback([arguments, &run] {
    run = [arguments] {
      std::setvbuf(stdout, nullptr, _IOLBF, 0);
      const absl::StatusOr<bool> different =
          arguments->chaos ? demo::RunChaos(*arguments) : demo::RunDemo(*arguments);
      return Outcome{different.status(), different.ok() && *different};
    };
  });
}

}  // namespace cpshard
