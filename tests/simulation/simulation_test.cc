// The state machines of both sides under schedules of faults: what docs/GUARANTEES.md promises
// holds in all of them, and the checker that says so notices when it does not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/run.h"

namespace cpshard::simulation {
namespace {

constexpr int64_t kSchedules = 10'000;
constexpr int64_t kLeastPercent = 5;

uint64_t Seed() {
  const char* given = std::getenv("CPSHARD_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}

// The first that fails, made smaller, and the command that runs it again.
std::string Report(uint64_t seed, const std::string& plant) {
  Scenario scenario = Draw(seed);
  if (!SetPlant(plant, scenario).ok()) return "no such fault";
  const std::vector<std::string> edits = Shrink(scenario);
  for (const std::string& edit : edits) {
    if (!Edit(edit, scenario).ok()) return "no such edit";
  }
  std::string text = Describe(scenario);
  for (const Violation& violation : RunAndCheck(scenario).violations) {
    absl::StrAppend(&text, violation.rule, ": ", violation.text, "\n");
  }
  absl::StrAppend(&text, "again: simulation --only ", seed);
  if (!plant.empty()) absl::StrAppend(&text, " --fault ", plant);
  if (!edits.empty()) absl::StrAppend(&text, " --edit ", absl::StrJoin(edits, ","));
  return text;
}

TEST(Schedules, KeepEveryPromiseWhateverFails) {
  const uint64_t seed = Seed();
  const Summary summary = RunMany(seed, kSchedules, "", /*to_first_failure=*/false);
  std::printf("%s%d schedules, %d operations, %d records checked, %d schedules with violations\n",
              Table(summary).c_str(), static_cast<int>(summary.schedules),
              static_cast<int>(summary.operations), static_cast<int>(summary.records),
              static_cast<int>(summary.failed));
  EXPECT_EQ(summary.failed, 0) << "CPSHARD_SEED=" << seed << ", seeds "
                               << absl::StrJoin(summary.failing, " ") << "\n"
                               << (summary.failing.empty() ? "" : Report(summary.failing[0], ""));
  for (const Event event : RareEvents(summary, kLeastPercent)) {
    ADD_FAILURE() << "in less than " << kLeastPercent << " % of the schedules: " << NameOf(event);
  }
}

TEST(Schedules, AreTheSameAgainForTheSameSeed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Judged once = RunAndCheck(Draw(seed)), again = RunAndCheck(Draw(seed));
    const History &a = once.outcome.history, &b = again.outcome.history;
    ASSERT_EQ(a.records.size(), b.records.size()) << "seed " << seed;
    for (size_t r = 0; r < a.records.size(); ++r) {
      ASSERT_EQ(Describe(a, a.records[r]), Describe(b, b.records[r])) << "seed " << seed;
    }
  }
}

class PlantedFault : public ::testing::TestWithParam<Plant> {};

TEST_P(PlantedFault, IsFoundByTheChecker) {
  const Plant& plant = GetParam();
  const Summary summary = RunMany(1, plant.schedules, plant.name, /*to_first_failure=*/true);
  ASSERT_EQ(summary.failed, 1) << plant.what << ": not found in " << summary.schedules
                               << " schedules";
  std::printf("%s: found by seed %d\n%s\n", plant.what.c_str(),
              static_cast<int>(summary.failing[0]), Report(summary.failing[0], plant.name).c_str());
}

INSTANTIATE_TEST_SUITE_P(Rules, PlantedFault, ::testing::ValuesIn(Plants()),
                         [](const auto& info) { return info.param.name; });

TEST(Shrinking, LeavesAScheduleThatBreaksTheSameRuleWithNothingToDropAnyMore) {
  Scenario scenario = Draw(2);
  ASSERT_TRUE(SetPlant("release_in_order", scenario).ok());
  const Judged whole = RunAndCheck(scenario);
  ASSERT_FALSE(whole.violations.empty());
  const std::string rule = whole.violations[0].rule;
  const std::vector<std::string> edits = Shrink(scenario);
  for (const std::string& edit : edits) ASSERT_TRUE(Edit(edit, scenario).ok()) << edit;
  EXPECT_TRUE(Breaks(RunAndCheck(scenario), rule)) << absl::StrJoin(edits, ",");
  for (const std::string& edit : EditsOf(scenario)) {
    if (edit[0] != 'f') continue;
    Scenario smaller = scenario;
    ASSERT_TRUE(Edit(edit, smaller).ok());
    EXPECT_FALSE(Breaks(RunAndCheck(smaller), rule)) << edit << " could have been dropped";
  }
}

TEST(Edits, ThatThereAreNotAreRefused) {
  Scenario scenario = Draw(1);
  for (const char* edit : {"", "x", "f99", "f", "g2"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Edit(edit, scenario))) << edit;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(SetPlant("gravity", scenario)));
}

}  // namespace
}  // namespace cpshard::simulation
