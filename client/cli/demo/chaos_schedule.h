// Who is killed in `cpshard demo --chaos`, and when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cpshard::demo {

enum class Victim { kServer, kLoader, kRank };

// At the moment at which rank `gate` has consumed step `step`, and goes on only when it is done.
struct Kill {
  Victim victim = Victim::kServer;
  int64_t index = 0;  // of the loader or rank
  int64_t step = 0;
  int64_t gate = 0;  // not the victim
  friend bool operator==(const Kill&, const Kill&) = default;
};

// "server", "loader 3"
std::string NameOf(const Kill& kill);

inline constexpr int64_t kMinChaosSteps = 30;

// One of each kind, in some order, each in a third of the steps of its own and not near the end; in
// the order of their steps. The same for the same seed, on every machine.
// Precondition: steps >= kMinChaosSteps, and there are two ranks at least.
std::vector<Kill> DrawKills(uint64_t seed, int64_t steps, int64_t loaders, int64_t ranks);

}  // namespace cpshard::demo
