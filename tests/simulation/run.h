// Schedules in numbers: run, judged, counted, and a failing one made smaller.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/world.h"

namespace cpshard::simulation {

// A rule that is switched off, or something tampered with.
struct Plant {
  std::string name;
  std::string what;       // as a sentence
  int64_t schedules = 0;  // within so many it has to be found
};
const std::vector<Plant>& Plants();
// Of none for an empty name. InvalidArgument: there is no such fault.
absl::Status SetPlant(const std::string& name, Scenario& scenario);

struct Judged {
  Outcome outcome;
  std::vector<Violation> violations;
};
Judged RunAndCheck(const Scenario& scenario);

struct Summary {
  int64_t schedules = 0, operations = 0, records = 0, failed = 0;
  std::array<int64_t, static_cast<size_t>(Event::kCount)> events{};
  std::vector<uint64_t> failing;  // seeds, the first few
};

// Runs the schedules of `seed`, seed + 1, ...; ends at the first failure if so asked.
Summary RunMany(uint64_t seed, int64_t schedules, const std::string& plant, bool to_first_failure);

// Of all events, with shares.
std::string Table(const Summary& summary);
// Those that fewer than `percent` of the schedules held.
std::vector<Event> RareEvents(const Summary& summary, int64_t percent);

// Whether that rule is among what is broken.
bool Breaks(const Judged& judged, const std::string& rule);

// The edits that leave a small schedule that still breaks the same rule.
std::vector<std::string> Shrink(const Scenario& scenario);

}  // namespace cpshard::simulation
