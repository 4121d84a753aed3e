// IndexMap: a function from the positions 0 ... size()-1 of one coordinate system to the columns
// of another, stored as runs. Every placement, every partition and their compositions are
// IndexMaps; all verbs (shard, gather, trim, explain) are built from the operations here.
//
//   position   0 1 2 3 4 5 6 7           runs: {source 4, length 3} {fill, 2} {source 0, length 3}
//   column     4 5 6 . . 0 1 2           (. = fill: the position has no column)
//
// A run has no destination offset: its position is the running sum of the lengths before it.
// So a map is total on [0, size()) and has neither holes nor overlaps on that side by construction.
// The other side may repeat or miss columns; only Inverse() needs it not to repeat.
//
// Values: copyable, comparable, printable; const methods are safe from several threads at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cpshard {

inline constexpr int64_t kFill = -1;  // the source of a run that has none

struct Run {
  int64_t source = kFill;  // first column, >= 0, or kFill
  int64_t length = 0;      // positions, > 0 inside an IndexMap
  friend bool operator==(const Run&, const Run&) = default;
};

class IndexMap {
 public:
  IndexMap() = default;

  // 0 ... size-1 onto themselves.
  static IndexMap Identity(int64_t size);

  // Room for so many runs.
  void Reserve(size_t runs);

  // From runs that a peer sent. InvalidArgument, naming the run: a negative length, a source that
  // is neither kFill nor >= 0, a source end beyond `columns`, a total beyond int64.
  static absl::StatusOr<IndexMap> FromRuns(absl::Span<const Run> runs, int64_t columns);

  // Adds positions at the end; merges with the last run where the columns (or the fill) go on.
  // Precondition: run.length >= 0, run.source >= 0 or kFill. Length 0 adds nothing.
  void Append(Run run);

  int64_t size() const { return size_; }
  const std::vector<Run>& runs() const { return runs_; }

  // First position of runs()[i]; starts()[runs().size()] does not exist, size() is that number.
  const std::vector<int64_t>& starts() const { return starts_; }

  // The column of `position`, or kFill. Precondition: 0 <= position < size(). O(log runs).
  int64_t At(int64_t position) const;

  // Index of the run that holds `position`. Precondition as At. O(log runs).
  size_t RunAt(int64_t position) const;

  // All columns, one per position: for tests and for layouts that report indices.
  std::vector<int64_t> Expand() const;

  // Composition: the result maps position i to this->At(next.At(i)), fill where `next` is fill.
  // With this = placement (padded <- source) and next = partition (local <- padded) the result is
  // local <- source. Precondition: every source of `next` is < size(). O(runs of the result).
  IndexMap Then(const IndexMap& next) const;

  // The map from columns to positions, of size `columns`; columns that no position has are fill.
  // InvalidArgument: a column is mapped twice, or lies at or beyond `columns`.
  absl::StatusOr<IndexMap> Inverse(int64_t columns) const;

  // "4+3 .+2 0+3" for the map above.
  std::string ToString() const;

  friend bool operator==(const IndexMap& a, const IndexMap& b) { return a.runs_ == b.runs_; }

 private:
  std::vector<Run> runs_;
  std::vector<int64_t> starts_;
  int64_t size_ = 0;
};

}  // namespace cpshard
