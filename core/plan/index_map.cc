#include "core/plan/index_map.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cpshard {

IndexMap IndexMap::Identity(int64_t size) {
  IndexMap map;
  map.Append({0, size});
  return map;
}

absl::StatusOr<IndexMap> IndexMap::FromRuns(absl::Span<const Run> runs, int64_t columns) {
  IndexMap map;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    const bool fill = run.source == kFill;
    if (run.length < 0 || run.source < kFill ||
        (!fill && (run.source > columns || run.length > columns - run.source))) {
      return absl::InvalidArgumentError(absl::StrCat("run ", i, " {source ", run.source,
                                                     ", length ", run.length,
                                                     "} is not a range of ", columns, " columns"));
    }
    if (run.length > std::numeric_limits<int64_t>::max() - map.size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("run ", i, " of length ", run.length, " makes the map longer than int64"));
    }
    map.Append(run);
  }
  return map;
}

void IndexMap::Reserve(size_t runs) {
  runs_.reserve(runs);
  starts_.reserve(runs);
}

void IndexMap::Append(Run run) {
  if (run.length == 0) return;
  if (!runs_.empty()) {
    Run& last = runs_.back();
    const bool goes_on =
        last.source == kFill ? run.source == kFill : run.source == last.source + last.length;
    if (goes_on) {
      last.length += run.length;
      size_ += run.length;
      return;
    }
  }
  starts_.push_back(size_);
  runs_.push_back(run);
  size_ += run.length;
}

size_t IndexMap::RunAt(int64_t position) const {
  return std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin() - 1;
}

int64_t IndexMap::At(int64_t position) const {
  const size_t i = RunAt(position);
  return runs_[i].source == kFill ? kFill : runs_[i].source + (position - starts_[i]);
}

std::vector<int64_t> IndexMap::Expand() const {
  std::vector<int64_t> columns;
  columns.reserve(size_);
  for (const Run& run : runs_) {
    for (int64_t i = 0; i < run.length; ++i) {
      columns.push_back(run.source == kFill ? kFill : run.source + i);
    }
  }
  return columns;
}

IndexMap IndexMap::Then(const IndexMap& next) const {
  IndexMap result;
  for (const Run& run : next.runs_) {
    if (run.source == kFill) {
      result.Append(run);
      continue;
    }
    int64_t position = run.source;
    int64_t left = run.length;
    for (size_t i = RunAt(position); left > 0; ++i) {
      const int64_t skipped = position - starts_[i];
      const int64_t take = std::min(left, runs_[i].length - skipped);
      const bool fill = runs_[i].source == kFill;
      result.Append({fill ? kFill : runs_[i].source + skipped, take});
      position += take;
      left -= take;
    }
  }
  return result;
}

absl::StatusOr<IndexMap> IndexMap::Inverse(int64_t columns) const {
  struct Piece {
    int64_t column, position, length;
  };
  std::vector<Piece> pieces;
  pieces.reserve(runs_.size());
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i].source != kFill) pieces.push_back({runs_[i].source, starts_[i], runs_[i].length});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.column < b.column; });
  IndexMap inverse;
  for (const Piece& piece : pieces) {
    if (piece.column < inverse.size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("column ", piece.column, " is mapped twice, so the map has no inverse"));
    }
    if (piece.column > columns - piece.length) {
      return absl::InvalidArgumentError(absl::StrCat("columns ", piece.column, " ... ",
                                                     piece.column + piece.length - 1,
                                                     " lie beyond the ", columns, " there are"));
    }
    inverse.Append({kFill, piece.column - inverse.size_});
    inverse.Append({piece.position, piece.length});
  }
  inverse.Append({kFill, columns - inverse.size_});
  return inverse;
}

std::string IndexMap::ToString() const {
  return absl::StrJoin(runs_, " ", [](std::string* out, const Run& run) {
    if (run.source == kFill) {
      absl::StrAppend(out, ".+", run.length);
    } else {
      absl::StrAppend(out, run.source, "+", run.length);
    }
  });
}

}  // namespace cpshard
