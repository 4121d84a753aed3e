#include "tests/gpu/pairs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::StatusOr<double> SecondsOf(const Walk& walk, const Clock& clock) {
  const double begin = clock();
  CPSHARD_RETURN_IF_ERROR(walk());
  const double took = clock() - begin;
  if (took > 0) return took;
  return absl::InternalError("a walk took no time");
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[(values.size() - 1) / 2], values.back()};
}

Walk Held(Walk walk) {
  return [walk = std::move(walk)]() -> absl::Status {
    absl::Status status = walk();
    return absl::IsResourceExhausted(status) ? absl::InternalError(status.message()) : status;
  };
}

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::StatusOr<Pairs> MeasurePairs(int rounds, double bytes, const Walk& ours, const Walk& anchor,
                                   const Clock& clock) {
  std::vector<double> our_rates, anchor_rates, ratios;
  for (int round = 0; round < rounds; ++round) {
    const bool ours_first = round % 2 == 1;
    CPSHARD_ASSIGN_OR_RETURN(const double first, SecondsOf(ours_first ? ours : anchor, clock));
    CPSHARD_ASSIGN_OR_RETURN(const double second, SecondsOf(ours_first ? anchor : ours, clock));
    const double our_seconds = ours_first ? first : second;
    const double anchor_seconds = ours_first ? second : first;
    our_rates.push_back(bytes / our_seconds / 1e9);
    anchor_rates.push_back(bytes / anchor_seconds / 1e9);
    ratios.push_back(anchor_seconds / our_seconds);
  }
  return Pairs{rounds, SpreadOf(our_rates), SpreadOf(anchor_rates), SpreadOf(ratios), bytes};
}

}  // namespace cpshard
