// cpshard: the command line. Errors are one line on standard error, `error: CODE: text`; the exit
// status is the code's gRPC number, 1 for a difference, 64 for a usage error (`error: USAGE: ...`).
#include <malloc.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/help.h"
#include "client/cli/printable.h"
#include "client/version.h"

namespace {

constexpr int kExitDifference = 1;
constexpr int kExitUsage = 64;

// Without its last line end: CLI11 adds one.
std::string VersionText() {
  std::string text = std::string("cpshard ") + cpshard::kVersion + "\n" + cpshard::kBuildFacts;
  text.pop_back();
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  // Received bytes are freed and allocated again all the time: keep them (see cpshardd).
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  signal(SIGPIPE, SIG_IGN);

  CLI::App app{"cpshard: shards batches for context-parallel training", "cpshard"};
  cpshard::SetHelpFormat(app);
  app.set_version_flag("--version", VersionText(),
                       "print the version and what this build was made of");
  app.require_subcommand(1);
  cpshard::Command run;
  cpshard::AddShardCommand(app, run);
  cpshard::AddGatherCommand(app, run);
  cpshard::AddPlanCommand(app, run);
  cpshard::AddExplainCommand(app, run);
  cpshard::AddVerifyCommand(app, run);
  cpshard::AddPushCommand(app, run);
  cpshard::AddPullCommand(app, run);
  cpshard::AddStatusCommand(app, run);
  cpshard::AddDemoCommand(app, run);
  cpshard::AddDemoLoaderCommand(app, run);
  cpshard::AddDemoChaosCommands(app, run);
  cpshard::AddBenchCommand(app, run);
  cpshard::AddHelpPages(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "%s\n", cpshard::OneLine(cpshard::UsageErrorLine(app, error)).c_str());
    return kExitUsage;
  }
  const cpshard::Outcome outcome = run();
  if (!outcome.status.ok()) {
    std::fprintf(stderr, "error: %s: %s\n", absl::StatusCodeToString(outcome.status.code()).c_str(),
                 cpshard::OneLine(std::string(outcome.status.message())).c_str());
    return static_cast<int>(outcome.status.code());
  }
  return outcome.difference ? kExitDifference : 0;
}
