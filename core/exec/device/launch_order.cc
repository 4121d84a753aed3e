#include "core/exec/device/launch_order.h"

#include <algorithm>
#include <iterator>

#include "core/exec/device/strips.h"

namespace cpshard {

size_t LaunchOrder::Stretches::Most(const Interval& interval) const {
  size_t most = 0;
  for (auto it = std::prev(from_.upper_bound(interval.begin));
       it != from_.end() && it->first < interval.end; ++it) {
    most = std::max(most, it->second);
  }
  return most;
}

void LaunchOrder::Stretches::Raise(const Interval& interval, size_t least) {
  for (const uint64_t edge : {interval.begin, interval.end}) {
    from_.emplace(edge, std::prev(from_.upper_bound(edge))->second);
  }
  for (auto it = from_.find(interval.begin); it->first < interval.end; ++it) {
    it->second = std::max(it->second, least);
  }
}

size_t LaunchOrder::Place(const Interval& reads, absl::Span<const Interval> writes) {
  const auto is_empty = [](const Interval& interval) { return interval.begin == interval.end; };
  size_t launch = is_empty(reads) ? 0 : written_.Most(reads);
  for (const Interval& dest : writes) {
    if (!is_empty(dest)) launch = std::max({launch, written_.Most(dest), read_.Most(dest)});
  }
  if (!is_empty(reads)) read_.Raise(reads, launch + 1);
  for (const Interval& dest : writes) {
    if (!is_empty(dest)) written_.Raise(dest, launch + 1);
  }
  return launch;
}

}  // namespace cpshard
