// The subcommands of `cpshard`. Each Add* declares one on the app and sets `run` to what it does
// when it was chosen; the result becomes the exit status.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cpshard {

// What a command ended with. `difference` = it worked and found shards that are not equal (exit 1).
struct Outcome {
  absl::Status status;
  bool difference = false;
};

using Command = std::function<Outcome()>;

void AddShardCommand(CLI::App& app, Command& run);
void AddGatherCommand(CLI::App& app, Command& run);
void AddPlanCommand(CLI::App& app, Command& run);
void AddExplainCommand(CLI::App& app, Command& run);
void AddVerifyCommand(CLI::App& app, Command& run);
void AddPushCommand(CLI::App& app, Command& run);
void AddPullCommand(CLI::App& app, Command& run);
void AddStatusCommand(CLI::App& app, Command& run);
void AddDemoCommand(CLI::App& app, Command& run);
void AddDemoLoaderCommand(CLI::App& app, Command& run);
void AddDemoChaosCommands(CLI::App& app, Command& run);
void AddBenchCommand(CLI::App& app, Command& run);

}  // namespace cpshard
