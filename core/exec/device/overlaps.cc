#include "core/exec/device/overlaps.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/exec/device/bodies.h"

namespace cpshard {
namespace {

// `strip` without its first `bytes`, and no longer than `size` bytes.
absl::StatusOr<Strip> PartOf(const Strip& strip, const Rule& rule, uint64_t bytes, uint64_t size) {
  Strip part = strip;
  part.dest += bytes;
  if (rule.kind == PieceKind::kCopy) part.source += bytes;
  if (rule.kind == PieceKind::kFill) part.source = Rotated(part.source, bytes);
  part.size = static_cast<int64_t>(size);
  if (!CountsElements(rule)) return part;
  const auto item = static_cast<uint64_t>(ItemSize(rule.dtype));
  if (bytes % item != 0 || size % item != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "two moves of a task meet inside an element of ", item, " bytes: one keeps ", size,
        " bytes from its byte ", bytes, " on; destinations of one task must not overlap"));
  }
  part.first += static_cast<int64_t>(bytes / item);
  part.size = static_cast<int64_t>(size / item);
  return part;
}

// A set of addresses.
class Covered {
 public:
  // Calls fn(begin, end) for the parts of `interval` that were not in the set; now they are.
  template <typename Fn>
  void AddNew(Interval interval, Fn fn) {
    auto next = ends_.upper_bound(interval.begin);  // by begin
    if (next != ends_.begin() && std::prev(next)->second >= interval.begin) --next;
    Interval all = interval;
    uint64_t at = interval.begin;
    while (next != ends_.end() && next->first <= interval.end) {
      if (next->first > at) fn(at, next->first);
      at = std::max(at, next->second);
      all = {std::min(all.begin, next->first), std::max(all.end, next->second)};
      next = ends_.erase(next);
    }
    if (at < interval.end) fn(at, interval.end);
    ends_[all.begin] = all.end;
  }

 private:
  std::map<uint64_t, uint64_t> ends_;  // begin to end; neither overlapping nor touching
};

// Whether two moves of the row fill one slot of a destination.
bool SlotsMeet(const Moves& row, size_t num_dests) {
  std::vector<int64_t> end(num_dests, 0);
  bool ascending = true;
  for (const Move& move : row) {
    if (move.length == 0) continue;
    ascending = ascending && move.to >= end[move.dest];
    end[move.dest] = move.to + move.length;
  }
  if (ascending) return false;
  std::vector<std::tuple<int32_t, int64_t, int64_t>> parts;
  for (const Move& move : row) {
    if (move.length > 0) parts.emplace_back(move.dest, move.to, move.to + move.length);
  }
  std::sort(parts.begin(), parts.end());
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto& [dest, to, end_of] = parts[i - 1];
    if (std::get<0>(parts[i]) == dest && std::get<1>(parts[i]) < end_of) return true;
  }
  return false;
}

}  // namespace

Footprint FootprintOf(const CutTask& task) {
  Footprint footprint;
  footprint.dests.resize(task.dests.size());
  std::vector<std::pair<int64_t, int64_t>> columns(task.dests.size(), {INT64_MAX, 0});
  for (const Moves& row : *task.moves) {
    footprint.overlaps = footprint.overlaps || SlotsMeet(row, task.dests.size());
    for (const Move& move : row) {
      if (move.length == 0) continue;
      auto& [first, end] = columns[move.dest];
      first = std::min(first, move.to);
      end = std::max(end, move.to + move.length);
    }
  }
  std::vector<Interval> sorted;
  for (size_t k = 0; k < task.dests.size(); ++k) {
    const auto [first, end] = columns[k];
    if (end == 0) continue;
    const uint64_t begin = reinterpret_cast<uintptr_t>(task.dests[k]) + first * task.column_bytes;
    const int64_t bytes = (end - first) * task.column_bytes;
    const int64_t rows = (task.outer - 1) * task.dest_strides[k];
    footprint.overlaps = footprint.overlaps || (task.outer > 1 && bytes > task.dest_strides[k]);
    footprint.dests[k] = {begin, begin + rows + bytes};
    sorted.push_back(footprint.dests[k]);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    footprint.overlaps = footprint.overlaps || sorted[i].begin < sorted[i - 1].end;
  }
  return footprint;
}

absl::Status KeepTheLater(const Strips& all, std::vector<Strip>& strips) {
  Covered covered;
  std::vector<Strip> kept;
  absl::Status status;
  for (size_t i = strips.size(); i-- > 0;) {
    const Strip& strip = strips[i];
    covered.AddNew(all.Writes(strip), [&](uint64_t begin, uint64_t end) {
      absl::StatusOr<Strip> part =
          PartOf(strip, all.rules[strip.rule], begin - strip.dest, end - begin);
      if (part.ok()) kept.push_back(*part);
      status.Update(part.status());
    });
  }
  std::reverse(kept.begin(), kept.end());
  strips = std::move(kept);
  return status;
}

}  // namespace cpshard
