// Moves of one task that write the same bytes: whether there are any, and that the later ones'
// stay.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "core/exec/device/strips.h"
#include "core/exec/task.h"

namespace cpshard {

// Where a cut writes, one interval a destination, and whether it may write a byte twice.
struct Footprint {
  std::vector<Interval> dests;
  bool overlaps = false;
};

Footprint FootprintOf(const CutTask& task);

// Cuts away what later strips of the list overwrite; the order of what is left has no meaning.
// InvalidArgument: they meet in the middle of an element.
absl::Status KeepTheLater(const Strips& all, std::vector<Strip>& strips);

}  // namespace cpshard
