#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/demo/chaos_loader.h"
#include "client/cli/demo/chaos_rank.h"

namespace cpshard {
namespace {

struct ChaosArguments {
  demo::ChaosWork work;
  int64_t loader = 0;
  demo::RankTask rank;
  std::vector<std::string> holds;

  demo::ChaosReporter reporter() const { return {STDIN_FILENO, STDOUT_FILENO, holds}; }
};

CLI::App* AddHidden(CLI::App& app, const char* name, ChaosArguments& arguments) {
  CLI::App* command = app.add_subcommand(name, "one process of `cpshard demo --chaos`");
  command->group("");
  demo::AddOptions(*command, arguments.work);
  // Waits there for a line on standard input: "step/train/0/7".
  command->add_option("--hold", arguments.holds)->allow_extra_args(false);
  return command;
}

}  // namespace

// For `cpshard demo --chaos` and tests, so --help does not show them.
void AddDemoChaosCommands(CLI::App& app, Command& run) {
  auto arguments = std::make_shared<ChaosArguments>();
  CLI::App* loader = AddHidden(app, "demo-chaos-loader", *arguments);
  loader->add_option("--loader", arguments->loader)->required();
  loader->callback([arguments, &run] {
    run = [arguments] {
      return Outcome{
          demo::RunChaosLoader(arguments->work, arguments->loader, arguments->reporter())};
    };
  });
  CLI::App* rank = AddHidden(app, "demo-chaos-rank", *arguments);
  rank->add_option("--rank", arguments->rank.rank)->required();
  rank->add_option("--state", arguments->rank.state);
  rank->add_option("--step-milliseconds", arguments->rank.step_milliseconds);
  rank->callback([arguments, &run] {
    run = [arguments] {
      return Outcome{demo::RunChaosRank(arguments->work, arguments->rank, arguments->reporter())};
    };
  });
}

}  // namespace cpshard
