// Two ways of doing the same, timed in turn: what one of them costs beside the other is asked of
// each pair, so that a clock that slows down or a busy neighbour is on both sides of the ratio.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cpshard {

struct Spread {
  double least = 0, median = 0, most = 0;
};

// Precondition: not empty. The median of an even number is the lower one of the two in the middle.
Spread SpreadOf(std::vector<double> values);

struct Pairs {
  int rounds = 0;
  Spread ours, anchor;  // 1e9 bytes a second
  Spread ratio;         // ours : anchor, of each pair
  double bytes = 0;     // of a walk
};

// Does all of it and waits for it.
using Walk = std::function<absl::Status()>;

// The same, of what is measured: where it says that memory is missing, it fails (Internal), since
// the machine has what the row needs.
Walk Held(Walk walk);

using Clock = std::function<double()>;  // seconds
double SteadySeconds();

// `rounds` pairs, at least one, of two walks over `bytes` bytes each; which goes first changes from
// pair to pair. What a walk says ends it. Internal: a walk took no time.
absl::StatusOr<Pairs> MeasurePairs(int rounds, double bytes, const Walk& ours, const Walk& anchor,
                                   const Clock& clock = SteadySeconds);

}  // namespace cpshard
