#include "core/exec/device/staging.h"

#include <algorithm>

#include "core/batch/buffer.h"

namespace cpshard {
namespace {

bool ByBegin(const Interval& a, const Interval& b) { return a.begin < b.begin; }

// Sorted, those that overlap or touch made one.
std::vector<Interval> Union(std::vector<Interval> all) {
  if (!std::is_sorted(all.begin(), all.end(), ByBegin)) std::sort(all.begin(), all.end(), ByBegin);
  std::vector<Interval> merged;
  for (const Interval& interval : all) {
    if (interval.begin == interval.end) continue;
    if (merged.empty() || interval.begin > merged.back().end) {
      merged.push_back(interval);
    } else {
      merged.back().end = std::max(merged.back().end, interval.end);
    }
  }
  return merged;
}

// Whether one of `merged`, which are apart, holds the interval.
bool Holds(const std::vector<Interval>& merged, const Interval& interval) {
  auto next = std::upper_bound(merged.begin(), merged.end(), interval, ByBegin);
  return next != merged.begin() && std::prev(next)->end >= interval.end;
}

// Whether one of `merged` has an address of the interval.
bool Meets(const std::vector<Interval>& merged, const Interval& interval) {
  auto next = std::upper_bound(merged.begin(), merged.end(), interval, ByBegin);
  if (next != merged.begin() && std::prev(next)->end > interval.begin) return true;
  return next != merged.end() && next->begin < interval.end;
}

void Append(std::vector<Interval>& to, const std::vector<Interval>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

int64_t Staging::OffsetOf(uint64_t address) const {
  auto next =
      std::upper_bound(regions.begin(), regions.end(), address,
                       [](uint64_t at, const Region& region) { return at < region.memory.begin; });
  const Region& region = *std::prev(next);
  return region.offset + static_cast<int64_t>(address - region.memory.begin);
}

Staging StagingOf(const Strips& strips) {
  std::vector<Interval> all, in, out;
  for (const std::vector<Strip>& launch : strips.launches) {
    std::vector<Interval> writes;
    for (const Strip& strip : launch) {
      if (strip.stage_dest) writes.push_back(strips.Writes(strip));
      if (!strip.stage_source) continue;
      const Interval read = strips.Reads(strip);
      all.push_back(read);
      if (!Holds(out, read)) in.push_back(read);
    }
    Append(out, writes);
    out = Union(std::move(out));
  }
  in = Union(std::move(in));
  Append(all, out);
  all = Union(std::move(all));

  Staging staging;
  for (const bool brought_in : {true, false}) {
    for (const Interval& memory : all) {
      if (Meets(in, memory) != brought_in) continue;
      const auto within = static_cast<int64_t>(memory.begin % kBufferAlignment);
      const int64_t offset = AlignUp(staging.bytes) + within;
      staging.regions.push_back({memory, offset});
      staging.bytes = offset + static_cast<int64_t>(memory.end - memory.begin);
    }
  }
  std::sort(staging.regions.begin(), staging.regions.end(),
            [](const auto& a, const auto& b) { return ByBegin(a.memory, b.memory); });
  for (const Interval& memory : in) staging.in.push_back({memory, staging.OffsetOf(memory.begin)});
  for (const Interval& memory : out) {
    staging.out.push_back({memory, staging.OffsetOf(memory.begin)});
  }
  const auto by_offset = [](const Staging::Region& a, const Staging::Region& b) {
    return a.offset < b.offset;
  };
  std::sort(staging.in.begin(), staging.in.end(), by_offset);
  std::sort(staging.out.begin(), staging.out.end(), by_offset);
  return staging;
}

void Restage(Strips& strips, const Staging& staging, uint64_t block) {
  for (std::vector<Strip>& launch : strips.launches) {
    for (Strip& strip : launch) {
      if (strip.stage_source && strips.rules[strip.rule].kind == PieceKind::kDerive) {
        // Its source is the whole, of which it may read a part that begins elsewhere.
        const uint64_t begin = strips.Reads(strip).begin;
        strip.source = block + staging.OffsetOf(begin) - (begin - strip.source);
      } else if (strip.stage_source) {
        strip.source = block + staging.OffsetOf(strip.source);
      }
      if (strip.stage_dest) strip.dest = block + staging.OffsetOf(strip.dest);
    }
  }
}

}  // namespace cpshard
