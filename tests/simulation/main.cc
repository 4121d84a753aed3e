// simulation: runs schedules, or one of them again in detail.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/simulation/run.h"

namespace cpshard::simulation {
namespace {

struct Flags {
  uint64_t seed = 1;
  int64_t schedules = 10000;
  std::optional<uint64_t> only;
  std::string fault, edit;
  bool shrink = false, history = false;
  int64_t least_percent = 0;
};

std::string Replay(const Flags& flags, uint64_t seed, const std::vector<std::string>& edits) {
  std::string command = absl::StrCat("simulation --only ", seed);
  if (!flags.fault.empty()) absl::StrAppend(&command, " --fault ", flags.fault);
  if (!edits.empty()) absl::StrAppend(&command, " --edit ", absl::StrJoin(edits, ","));
  return command;
}

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

int RunOne(const Flags& flags, uint64_t seed) {
  Scenario scenario = Draw(seed);
  std::vector<std::string> edits = absl::StrSplit(flags.edit, ',', absl::SkipEmpty());
  absl::Status status = SetPlant(flags.fault, scenario);
  for (const std::string& edit : edits) status.Update(Edit(edit, scenario));
  if (!status.ok()) {
    std::fprintf(stderr, "simulation: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  if (flags.shrink) {
    for (const std::string& edit : Shrink(scenario)) {
      if (Edit(edit, scenario).ok()) edits.push_back(edit);
    }
  }
  const Judged judged = RunAndCheck(scenario);
  const History& history = judged.outcome.history;
  if (flags.history) {
    for (const Record& record : history.records) {
      if (record.kind != Kind::kMemory) Print(Describe(history, record) + "\n");
    }
  }
  Print(Describe(scenario));
  for (const Violation& violation : judged.violations) {
    Print(absl::StrCat(violation.rule, ": ", violation.text, "\n"));
  }
  Print(absl::StrCat("seed ", seed, ": ", judged.outcome.operations, " operations, ",
                     judged.violations.size(), " violations\n"));
  if (!judged.violations.empty()) Print(absl::StrCat("again: ", Replay(flags, seed, edits), "\n"));
  return judged.violations.empty() ? 0 : 1;
}

int RunAll(Flags flags) {
  const auto start = std::chrono::steady_clock::now();
  const bool planted = !flags.fault.empty();
  const Summary summary = RunMany(flags.seed, flags.schedules, flags.fault, planted);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!planted) Print(absl::StrCat("share of the schedules in which\n", Table(summary)));
  Print(absl::StrCat(summary.schedules, " schedules, ", summary.operations, " operations, ",
                     summary.records, " records checked, ", summary.failed,
                     " schedules with violations, ", seconds, " s\n"));
  if (!summary.failing.empty()) {
    Print(absl::StrCat("failing seeds: ", absl::StrJoin(summary.failing, " "), "\n"));
    flags.shrink = true;
    RunOne(flags, summary.failing[0]);
    return 1;
  }
  const std::vector<Event> rare = RareEvents(summary, flags.least_percent);
  for (const Event event : rare) Print(absl::StrCat("too rare: ", NameOf(event), "\n"));
  return rare.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Schedules of faults, checked. Ends with 1 if a rule is broken.", "simulation");
  app.add_option("--schedules", flags.schedules, "how many")->capture_default_str();
  app.add_option("--seed", flags.seed, "of the first one")->capture_default_str();
  app.add_option("--only", flags.only, "the schedule of this seed alone, in detail");
  app.add_option("--fault", flags.fault, "a rule of server/session/rules.h that is switched off");
  app.add_option("--edit", flags.edit, "with --only: edits that make it smaller, f0,g1,...");
  app.add_option("--least-percent", flags.least_percent,
                 "fail if an event is in fewer of the schedules");
  app.add_flag("--shrink", flags.shrink, "with --only: looks for a smaller one that fails");
  app.add_flag("--history", flags.history, "with --only: what happened");
  CLI11_PARSE(app, argc, argv);
  return flags.only ? RunOne(flags, *flags.only) : RunAll(flags);
}

}  // namespace
}  // namespace cpshard::simulation

int main(int argc, char** argv) { return cpshard::simulation::Main(argc, argv); }
