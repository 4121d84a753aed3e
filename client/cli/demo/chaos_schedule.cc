#include "client/cli/demo/chaos_schedule.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard::demo {
namespace {

// Ranks are that far apart at most, so that the victim of a kill has steps before it, too.
constexpr int64_t kLastSteps = 8;
constexpr int64_t kFirstSteps = 2;

}  // namespace

std::string NameOf(const Kill& kill) {
  if (kill.victim == Victim::kServer) return "server";
  return absl::StrCat(kill.victim == Victim::kLoader ? "loader " : "rank ", kill.index);
}

std::vector<Kill> DrawKills(uint64_t seed, int64_t steps, int64_t loaders, int64_t ranks) {
  std::mt19937_64 random(seed);
  // The library's distributions differ between machines.
  const auto draw = [&random](int64_t begin, int64_t end) {
    return begin + static_cast<int64_t>(random() % static_cast<uint64_t>(end - begin));
  };
  std::vector<Victim> order = {Victim::kServer, Victim::kLoader, Victim::kRank};
  for (int64_t i = 2; i > 0; --i) std::swap(order[i], order[draw(0, i + 1)]);
  std::vector<Kill> kills;
  for (int64_t third = 0; third < 3; ++third) {
    const int64_t begin = std::max(kFirstSteps, third * steps / 3);
    const int64_t end = std::min(steps - kLastSteps, (third + 1) * steps / 3);
    Kill kill{.victim = order[third], .step = draw(begin, end), .gate = draw(0, ranks)};
    if (kill.victim == Victim::kLoader) kill.index = draw(0, loaders);
    if (kill.victim == Victim::kRank) {
      kill.index = draw(0, ranks);
      if (kill.gate == kill.index) kill.gate = (kill.index + 1) % ranks;
    }
    kills.push_back(kill);
  }
  return kills;
}

}  // namespace cpshard::demo
