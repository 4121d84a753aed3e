#include "tests/simulation/run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cpshard::simulation {
namespace {

constexpr size_t kMostSeeds = 20;

}  // namespace

const std::vector<Plant>& Plants() {
  static const std::vector<Plant> plants = {
      {"release_in_order", "a step is delivered before all steps ahead of it can be", 200},
      {"fence", "a new generation leaves the calls of the old one alone", 500},
      {"check_digests", "a step that comes again may be another one", 3000},
      {"commit_is_explicit", "a request for a later step commits those before it", 200},
      {"guarantee_room", "a data stream may take all the room", 3000},
      {"check_commit_terms", "a commit of an old generation or pass counts", 5000},
      {"states_by_step", "the resume state is the latest by arrival", 2000},
      {"resume_is_exact", "the resume state is the one after the step asked for", 500},
      {"keep_budget", "memory is granted when there is none", 500},
      {"same_end_for_all", "the end is one step later for one rank", 200},
      {"gap_for_one_rank", "a rank is not sent a step", 200},
      {"other_cp_for_one_rank", "a rank's shards are cut for another cp_size", 200},
  };
  return plants;
}

absl::Status SetPlant(const std::string& name, Scenario& scenario) {
  if (name.empty()) return absl::OkStatus();
  DeliveryRules& rules = scenario.server.rules;
  const std::pair<const char*, bool*> switches[] = {
      {"release_in_order", &rules.release_in_order},
      {"fence", &rules.fence},
      {"check_digests", &rules.check_digests},
      {"commit_is_explicit", &rules.commit_is_explicit},
      {"guarantee_room", &rules.guarantee_room},
      {"check_commit_terms", &rules.check_commit_terms},
      {"states_by_step", &rules.states_by_step},
      {"resume_is_exact", &rules.resume_is_exact},
      {"keep_budget", &rules.keep_budget},
      {"same_end_for_all", &rules.same_end_for_all},
  };
  for (const auto& [rule, flag] : switches) {
    if (name != rule) continue;
    *flag = false;
    return absl::OkStatus();
  }
  if (name == "gap_for_one_rank") {
    scenario.tampering = Tampering::kGapForOneRank;
  } else if (name == "other_cp_for_one_rank") {
    scenario.tampering = Tampering::kOtherCpForOneRank;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("there is no fault '", name, "' to plant"));
  }
  return absl::OkStatus();
}

Judged RunAndCheck(const Scenario& scenario) {
  Judged judged;
  judged.outcome = World(scenario).Run();
  judged.violations = Check(judged.outcome.history);
  return judged;
}

Summary RunMany(uint64_t seed, int64_t schedules, const std::string& plant, bool to_first_failure) {
  Summary summary;
  for (int64_t s = 0; s < schedules; ++s) {
    Scenario scenario = Draw(seed + s);
    if (!SetPlant(plant, scenario).ok()) return summary;
    const Judged judged = RunAndCheck(scenario);
    ++summary.schedules;
    summary.operations += judged.outcome.operations;
    summary.records += static_cast<int64_t>(judged.outcome.history.records.size());
    for (size_t e = 0; e < summary.events.size(); ++e) {
      summary.events[e] += judged.outcome.coverage.seen[e] ? 1 : 0;
    }
    if (judged.violations.empty()) continue;
    ++summary.failed;
    if (summary.failing.size() < kMostSeeds) summary.failing.push_back(seed + s);
    if (to_first_failure) break;
  }
  return summary;
}

std::string Table(const Summary& summary) {
  std::string text;
  for (size_t e = 0; e < summary.events.size(); ++e) {
    absl::StrAppendFormat(&text, "  %5.1f %%  %s\n",
                          100.0 * summary.events[e] / std::max<int64_t>(summary.schedules, 1),
                          NameOf(static_cast<Event>(e)));
  }
  return text;
}

std::vector<Event> RareEvents(const Summary& summary, int64_t percent) {
  std::vector<Event> rare;
  for (size_t e = 0; e < summary.events.size(); ++e) {
    if (100 * summary.events[e] < percent * summary.schedules)
      rare.push_back(static_cast<Event>(e));
  }
  return rare;
}

bool Breaks(const Judged& judged, const std::string& rule) {
  return std::any_of(judged.violations.begin(), judged.violations.end(),
                     [&](const Violation& violation) { return violation.rule == rule; });
}

std::vector<std::string> Shrink(const Scenario& scenario) {
  const Judged whole = RunAndCheck(scenario);
  std::vector<std::string> edits;
  if (whole.violations.empty()) return edits;
  const std::string rule = whole.violations[0].rule;
  Scenario smaller = scenario;
  for (bool again = true; again;) {
    again = false;
    for (const std::string& edit : EditsOf(smaller)) {
      // All but dropping a fault may be tried for ever.
      if (std::count(edits.begin(), edits.end(), edit) >= (edit == "t" ? 3 : 1)) continue;
      Scenario candidate = smaller;
      if (!Edit(edit, candidate).ok() || !Breaks(RunAndCheck(candidate), rule)) continue;
      smaller = candidate;
      edits.push_back(edit);
      again = true;
    }
  }
  return edits;
}

}  // namespace cpshard::simulation
