// Judges a history by the invariants of a session: what docs/GUARANTEES.md promises, restated over
// what was sent and received. Knows nothing of how a server or a client works.
//
//   I1 ordered, I2 stable, I3 complete   of one generation on one server, in the order of sending
//   I4 every rank its own shard          I5 what trainers get and save is that of a run without
//   I6 memory within the budget          faults
//   I7 nothing for an old generation     I8 one end for all
//   I10 everything finishes              D14 groups of a job pad alike
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/simulation/history.h"

namespace cpshard::simulation {

struct Violation {
  std::string rule;
  size_t record = 0;
  std::string text;
};

// In the order of the rules; of each rule the first few.
std::vector<Violation> Check(const History& history);

// --- the parts of it

class Violations {
 public:
  explicit Violations(const History& history) : history_(history) {}
  void Add(const char* rule, const Record& record, const std::string& text);
  std::vector<Violation> Take() { return std::move(found_); }

 private:
  const History& history_;
  std::vector<Violation> found_;
};

void CheckOrder(const History& history, Violations& found);     // I1, I3
void CheckShards(const History& history, Violations& found);    // I2, I4, what stands beside shards
void CheckTraining(const History& history, Violations& found);  // I5
void CheckStates(const History& history, Violations& found);    // I5: what can be resumed from
void CheckMemory(const History& history, Violations& found);    // I6
void CheckFence(const History& history, Violations& found);     // I7
void CheckEnds(const History& history, Violations& found);      // I8
void CheckAnswers(const History& history, Violations& found);   // no correct client is refused
void CheckLoaders(const History& history, Violations& found);   // released steps are not asked for
void CheckFinish(const History& history, Violations& found);    // I10

}  // namespace cpshard::simulation
