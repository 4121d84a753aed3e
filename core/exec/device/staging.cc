#include "core/exec/device/staging.h"

#include <algorithm>
#include <utility>

#include "core/batch/buffer.h"

namespace cpshard {
namespace {

bool ByBegin(const Interval& a, const Interval& b) { return a.begin < b.begin; }

// Memory on end, of one allocation.
struct Stretch : Interval {
  uint32_t memory = kPageableMemory;
};

// Sorted; those that overlap made one, and those of one memory that touch.
std::vector<Stretch> Union(std::vector<Stretch> all) {
  if (!std::is_sorted(all.begin(), all.end(), ByBegin)) std::sort(all.begin(), all.end(), ByBegin);
  std::vector<Stretch> merged;
  for (const Stretch& stretch : all) {
    if (stretch.begin == stretch.end) continue;
    Stretch* last = merged.empty() ? nullptr : &merged.back();
    if (last == nullptr || stretch.begin > last->end ||
        (stretch.begin == last->end && stretch.memory != last->memory)) {
      merged.push_back(stretch);
    } else {
      last->end = std::max(last->end, stretch.end);
    }
  }
  return merged;
}

// Whether one of `merged`, which are apart, holds the interval.
bool Holds(const std::vector<Stretch>& merged, const Interval& interval) {
  auto next = std::upper_bound(merged.begin(), merged.end(), interval, ByBegin);
  return next != merged.begin() && std::prev(next)->end >= interval.end;
}

// Whether one of `merged` has an address of the interval.
bool Meets(const std::vector<Stretch>& merged, const Interval& interval) {
  auto next = std::upper_bound(merged.begin(), merged.end(), interval, ByBegin);
  if (next != merged.begin() && std::prev(next)->end > interval.begin) return true;
  return next != merged.end() && next->begin < interval.end;
}

void Append(std::vector<Stretch>& to, const std::vector<Stretch>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// For every number of a memory one that all have whose intervals overlap: these are of one
// allocation.
std::vector<uint32_t> Allocations(const std::vector<Interval>& pinned) {
  std::vector<uint32_t> allocation(kPinnedMemory + pinned.size());
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < allocation.size(); ++i) {
    allocation[i] = i;
    if (i >= kPinnedMemory) order.push_back(i);
  }
  const auto of = [&](uint32_t memory) { return pinned[memory - kPinnedMemory]; };
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return ByBegin(of(a), of(b)); });
  uint64_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && of(order[i]).begin < end) allocation[order[i]] = allocation[order[i - 1]];
    end = std::max(end, of(order[i]).end);
  }
  return allocation;
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
  const std::vector<uint32_t> allocations = Allocations(strips.pinned);
  std::vector<Stretch> all, in, out;
  for (const std::vector<Strip>& launch : strips.launches) {
    std::vector<Stretch> writes;
    for (const Strip& strip : launch) {
      if (strip.dest_memory != kReachedMemory) {
        writes.push_back({strips.Writes(strip), allocations[strip.dest_memory]});
      }
      if (strip.source_memory == kReachedMemory) continue;
      const Stretch read = {strips.Reads(strip), allocations[strip.source_memory]};
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
    for (const Stretch& memory : all) {
      if (Meets(in, memory) != brought_in) continue;
      const auto within = static_cast<int64_t>(memory.begin % kBufferAlignment);
      const int64_t offset = AlignUp(staging.bytes) + within;
      staging.regions.push_back({memory, offset, memory.memory >= kPinnedMemory});
      staging.bytes = offset + static_cast<int64_t>(memory.end - memory.begin);
    }
  }
  std::sort(staging.regions.begin(), staging.regions.end(),
            [](const auto& a, const auto& b) { return ByBegin(a.memory, b.memory); });
  const auto place = [&](const std::vector<Stretch>& stretches, std::vector<Staging::Region>& to) {
    for (const Stretch& memory : stretches) {
      to.push_back({memory, staging.OffsetOf(memory.begin), memory.memory >= kPinnedMemory});
    }
    std::sort(to.begin(), to.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
  };
  place(in, staging.in);
  place(out, staging.out);
  return staging;
}

void Restage(Strips& strips, const Staging& staging, uint64_t block) {
  for (std::vector<Strip>& launch : strips.launches) {
    for (Strip& strip : launch) {
      const bool stage_source = strip.source_memory != kReachedMemory;
      if (stage_source && strips.rules[strip.rule].kind == PieceKind::kDerive) {
        // Its source is the whole, of which it may read a part that begins elsewhere.
        const uint64_t begin = strips.Reads(strip).begin;
        strip.source = block + staging.OffsetOf(begin) - (begin - strip.source);
      } else if (stage_source) {
        strip.source = block + staging.OffsetOf(strip.source);
      }
      if (strip.dest_memory != kReachedMemory) {
        strip.dest = block + staging.OffsetOf(strip.dest);
      }
    }
  }
}

}  // namespace cpshard
