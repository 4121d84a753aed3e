#include "tests/simulation/coverage.h"

#include <iterator>

namespace cpshard::simulation {

const char* NameOf(Event event) {
  static constexpr const char* kNames[] = {
      "the server crashes",
      "the server drains and ends",
      "a reader's connection breaks",
      "a reader crashes",
      "a reader freezes",
      "a reader goes back some steps",
      "a reader is slow",
      "a loader's connection breaks",
      "a loader crashes",
      "a loader freezes",
      "a frozen loader is replaced",
      "a loader is slow",
      "a push does not land",
      "a group restarts",
      "a frozen group is replaced",
      "cp_size changes",
      "two launchers at once",
      "a launcher is refused",
      "PEER_LEFT",
      "DEADLINE_EXCEEDED",
      "a seek forwards",
      "a seek backwards",
      "a push of an old epoch",
      "a commit of an old generation",
      "a push that is here already",
      "a release before the step is complete",
      "the end of a stream",
      "a pass of validation",
      "a second pass of training",
      "credit waits for memory",
      "a group waits for room",
      "a step is asked for once more",
      "a step is asked for behind what is here",
      "a digest conflict",
      "a seek with a reader's state",
      "sources that cannot go back",
      "a declared group begins before it is opened",
      "two groups",
      "two groups of one job",
  };
  static_assert(std::size(kNames) == static_cast<size_t>(Event::kCount));
  return kNames[static_cast<size_t>(event)];
}

}  // namespace cpshard::simulation
