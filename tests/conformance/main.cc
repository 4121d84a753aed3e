// conformance --corpus FILE... [--server ADDR [--stream]] [--only ID...] [--verbose]
//
// Runs the golden corpus against cpshard, in this process or through a server. Exit status: 0 when
// nothing failed and something passed, 1 otherwise, 64 for wrong usage.
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/exec/executor.h"
#include "tests/conformance/report.h"
#include "tests/conformance/session.h"
#include "tests/conformance/target.h"
#include "tests/conformance/through_server.h"

namespace cpshard::conformance {
namespace {

constexpr int kUsageError = 64;

struct Flags {
  std::vector<std::string> corpus;
  std::string server;  // empty = in process
  bool stream = false;
  std::vector<std::string> only;
  bool verbose = false;
};

int Run(const Flags& flags, bool through_server) {
  absl::StatusOr<Target> target = !through_server ? InProcess(MakeCpuExecutor())
                                  : flags.stream  ? ThroughStream(flags.server)
                                                  : ThroughServer(flags.server);
  if (!target.ok()) {
    std::cerr << "error: " << target.status().ToString() << std::endl;
    return absl::IsInvalidArgument(target.status()) ? kUsageError : 1;
  }
  Report report(std::cout, flags.verbose);
  Session session({flags.only.begin(), flags.only.end()}, *target, report);
  for (const std::string& path : flags.corpus) session.RunFile(path);
  session.ReportUnknownIds();
  report.PrintSummary();
  return report.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cpshard::conformance

int main(int argc, char** argv) {
  cpshard::conformance::Flags flags;
  CLI::App app("Runs the golden corpus against cpshard.", "conformance");
  app.add_option("--corpus", flags.corpus, "JSON-lines files of cases, or .json with vectors")
      ->required()
      ->expected(1, -1)
      ->check(CLI::ExistingFile);
  CLI::Option* server =
      app.add_option("--server", flags.server, "cpshardd to ask (default: in this process)");
  app.add_flag("--stream", flags.stream, "send the batches through ShardBatches")->needs(server);
  app.add_option("--only", flags.only, "ids of the cases to run")->expected(1, -1);
  app.add_flag("--verbose", flags.verbose, "print what the product answered, case by case");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : cpshard::conformance::kUsageError;
  }
  return cpshard::conformance::Run(flags, !server->empty());
}
