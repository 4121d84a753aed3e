#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/demo/loader.h"

namespace cpshard {

// For `cpshard demo` alone, so --help does not show it.
void AddDemoLoaderCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand("demo-loader", "one loader process of `cpshard demo`");
  command->group("");
  auto task = std::make_shared<demo::LoaderTask>();
  command->add_option("--server", task->server)->required();
  command->add_option("--layout", task->layout)->required();
  command->add_option("--loader", task->loader)->required();
  command->add_option("--loaders", task->loaders)->required()->check(CLI::PositiveNumber);
  command->add_option("--done", task->done)->required()->check(CLI::NonNegativeNumber);
  command->add_option("--batches", task->batches)->required();
  command->add_option("--max-bytes", task->max_bytes)->required();
  command->add_option("files", task->files);
  command->callback(
      [task, &run] { run = [task] { return Outcome{demo::RunLoader(*task, STDOUT_FILENO)}; }; });
}

}  // namespace cpshard
