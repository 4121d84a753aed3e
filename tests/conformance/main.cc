// conformance --corpus FILE... [--server ADDR [--stream]] [--only ID...] [--verbose]
//
// Runs the golden corpus against cpshard, in this process or through a server. Exit status: 0 when
// nothing failed and something passed, 1 otherwise, 64 for wrong usage.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/conformance/input.h"
#include "tests/conformance/json.h"
#include "tests/conformance/report.h"
#include "tests/conformance/run.h"
#include "tests/conformance/target.h"
#include "tests/conformance/vectors.h"

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

Outcome Unreadable(absl::string_view why) {
  return {.kind = Outcome::Kind::kFailed, .text = std::string(why)};
}

Outcome NotOnWire() { return {.kind = Outcome::Kind::kSkipped, .text = "verb not on the wire"}; }

// Runs the cases of the corpus files that --only lets through.
class Session {
 public:
  Session(const Flags& flags, const Target& target, Report& report)
      : wanted_(flags.only.begin(), flags.only.end()), target_(target), report_(report) {}

  void RunFile(const std::string& path) {
    const std::string stem = std::filesystem::path(path).stem().string();
    std::ifstream file(path, std::ios::binary);
    if (absl::EndsWith(path, ".json")) return RunVectors(stem, file);
    std::string line;
    for (int64_t number = 1; std::getline(file, line); ++number) {
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      RunLine(stem, absl::StrCat(stem, ":", number), line);
    }
    if (!file.eof()) {
      report_.Add(absl::StrCat(stem, "/?"), stem, Unreadable(absl::StrCat("cannot read ", path)));
    }
  }

  void ReportUnknownIds() {
    for (const std::string& id : wanted_) {
      if (seen_.count(id) == 0) report_.Add("?/?", id, Unreadable("no such case in the corpus"));
    }
  }

 private:
  // Masks and partitions for the solver that magi dispatches with.
  void RunVectors(const std::string& stem, std::istream& file) {
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const absl::StatusOr<std::vector<DispatchVector>> vectors = ReadVectors(text);
    const std::string family = absl::StrCat(stem, "/dispatch");
    if (!vectors.ok()) return report_.Add(family, stem, Unreadable(vectors.status().message()));
    for (const DispatchVector& vector : *vectors) {
      if (!wanted_.empty() && wanted_.count(vector.name) == 0) continue;
      seen_.insert(vector.name);
      report_.Add(family, vector.name, target_.on_wire ? NotOnWire() : RunVector(vector));
    }
  }

  // `where` names the line as long as its id is not known.
  void RunLine(const std::string& stem, const std::string& where, const std::string& line) {
    absl::StatusOr<Json> json = ParseLine(line);
    if (!json.ok()) {
      const std::string text = absl::StrCat("unreadable line: ", json.status().message());
      return report_.Add(absl::StrCat(stem, "/?"), where, Unreadable(text));
    }
    const std::string id = TextOf(*json, "id", where);
    const std::string family = absl::StrCat(stem, "/", TextOf(*json, "backend", "?"));
    if (!wanted_.empty() && wanted_.count(id) == 0) return;
    seen_.insert(id);
    const absl::StatusOr<Case> item = SplitCase(*std::move(json));
    if (!item.ok()) {
      const std::string text = absl::StrCat("malformed case: ", item.status().message());
      return report_.Add(family, id, Unreadable(text));
    }
    report_.Add(family, id, RunCase(*item, target_));
  }

  static std::string TextOf(const Json& json, absl::string_view key, absl::string_view missing) {
    const Json* value = Find(json, key);
    return value != nullptr && value->is_string() ? value->get<std::string>()
                                                  : std::string(missing);
  }

  std::set<std::string> wanted_, seen_;
  const Target& target_;
  Report& report_;
};

int Run(const Flags& flags, bool through_server) {
  absl::StatusOr<Target> target = !through_server ? InProcess()
                                  : flags.stream  ? ThroughStream(flags.server)
                                                  : ThroughServer(flags.server);
  if (!target.ok()) {
    std::cerr << "error: " << target.status().ToString() << std::endl;
    return absl::IsInvalidArgument(target.status()) ? kUsageError : 1;
  }
  Report report(std::cout, flags.verbose);
  Session session(flags, *target, report);
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
