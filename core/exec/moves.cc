#include "core/exec/moves.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cpshard {
namespace {

bool Before(const Cut& a, const Cut& b) { return a.column < b.column; }

// Merges sorted ranges, which end at `ends`, two by two until one is left. Stable.
std::vector<Cut> Merged(std::vector<Cut> cuts, std::vector<size_t> ends) {
  std::vector<Cut> merged(ends.size() > 1 ? cuts.size() : 0);
  while (ends.size() > 1) {
    std::vector<size_t> joined;
    size_t begin = 0;
    for (size_t i = 0; i < ends.size(); i += 2) {
      const size_t end = ends[std::min(i + 1, ends.size() - 1)];
      const auto middle = cuts.begin() + ends[i];
      std::merge(cuts.begin() + begin, middle, middle, cuts.begin() + end, merged.begin() + begin,
                 Before);
      joined.push_back(begin = end);
    }
    cuts.swap(merged);
    ends = std::move(joined);
  }
  return cuts;
}

size_t NumRuns(absl::Span<const IndexMap> partition, absl::Span<const int64_t> ranks) {
  size_t runs = 0;
  for (const int64_t rank : ranks) runs += partition[rank].runs().size();
  return runs;
}

// The runs of all destinations, whatever they are.
std::vector<Cut> Merge(absl::Span<const IndexMap> partition, absl::Span<const int64_t> ranks) {
  std::vector<Cut> all;
  all.reserve(NumRuns(partition, ranks));
  std::vector<size_t> ends;
  for (size_t dest = 0; dest < ranks.size(); ++dest) {
    const IndexMap& local = partition[ranks[dest]];
    const auto begin = static_cast<int64_t>(all.size());
    for (size_t i = 0; i < local.runs().size(); ++i) {
      const Run& run = local.runs()[i];
      all.push_back({run.source, local.starts()[i], run.length, static_cast<int32_t>(dest)});
    }
    if (!std::is_sorted(all.begin() + begin, all.end(), Before)) {
      std::stable_sort(all.begin() + begin, all.end(), Before);
    }
    ends.push_back(all.size());
  }
  return Merged(std::move(all), std::move(ends));
}

// The usual partitions tile the columns, and behind a run goes on the same destination or the one
// next to it: slices, or heads and tails. Puts their runs in order without comparing them all.
// False, with no more than a part of them in `cuts`: it is not so.
bool Chain(absl::Span<const IndexMap> partition, absl::Span<const int64_t> ranks,
           std::vector<Cut>& cuts) {
  const size_t runs = NumRuns(partition, ranks);
  cuts.reserve(runs);
  std::vector<size_t> next(ranks.size(), 0);
  int64_t column = 0;
  const auto goes_on = [&](size_t dest) {
    if (dest >= ranks.size()) return false;
    const std::vector<Run>& of_dest = partition[ranks[dest]].runs();
    return next[dest] < of_dest.size() && of_dest[next[dest]].source == column;
  };
  for (size_t dest = 0; cuts.size() < runs;) {
    if (goes_on(dest + 1)) {
      ++dest;
    } else if (dest > 0 && goes_on(dest - 1)) {
      --dest;
    } else if (!goes_on(dest)) {
      return false;
    }
    const IndexMap& local = partition[ranks[dest]];
    const size_t i = next[dest]++;
    const int64_t length = local.runs()[i].length;
    cuts.push_back({column, local.starts()[i], length, static_cast<int32_t>(dest)});
    column += length;
  }
  return true;
}

// Looks up the runs of a map, at positions that mostly ascend.
class RunCursor {
 public:
  explicit RunCursor(const IndexMap& map) : map_(map) {}

  // Calls fn(index of the run, first position of the overlap, length) for every run of the map that
  // the positions [begin, begin + length) touch.
  template <typename Fn>
  void ForRuns(int64_t begin, int64_t length, Fn fn) {
    if (length == 0) return;
    if (!Holds(at_, begin)) at_ = Holds(at_ + 1, begin) ? at_ + 1 : map_.RunAt(begin);
    while (true) {
      const int64_t take = std::min(length, map_.starts()[at_] + map_.runs()[at_].length - begin);
      fn(at_, begin, take);
      begin += take;
      length -= take;
      if (length == 0) return;
      ++at_;
    }
  }

 private:
  bool Holds(size_t run, int64_t position) const {
    return run < map_.runs().size() && position >= map_.starts()[run] &&
           position - map_.starts()[run] < map_.runs()[run].length;
  }

  const IndexMap& map_;
  size_t at_ = 0;
};

// Collects the moves that come of cuts, one cut after the other.
class MoveList {
 public:
  // `splits`: how often a cut may end in the middle, at most. Of the segments of all chunks one
  // chunk takes few, so that room for more than twice the cuts is not made in advance.
  MoveList(const Cuts& cuts, size_t splits) : disjoint_(cuts.disjoint) {
    if (disjoint_) moves_.reserve(cuts.runs.size() + std::min(cuts.runs.size(), splits));
  }

  // A move that begins at the padded column `column`, to be filled in where it lies: copying one
  // that was just put together stalls on its bytes.
  Move& Add(int64_t column) {
    return disjoint_ ? moves_.emplace_back() : placed_.emplace_back(column).move;
  }

  // Disjoint cuts leave their moves in order; of others one may begin before the last one's end.
  Moves Take() {
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
      return std::tie(a.column, a.move.dest, a.move.to) <
             std::tie(b.column, b.move.dest, b.move.to);
    });
    for (const Placed& placed : placed_) moves_.push_back(placed.move);
    return std::move(moves_);
  }

 private:
  struct Placed {
    explicit Placed(int64_t at) : column(at) {}
    int64_t column;
    Move move;
  };

  const bool disjoint_;
  Moves moves_;
  std::vector<Placed> placed_;
};

// The column that the fill run `i` of a placement continues, or kFill.
int64_t Anchor(const IndexMap& placement, size_t i) {
  if (i == 0) return kFill;
  const Run& before = placement.runs()[i - 1];  // not fill: fill runs merge
  return before.source + before.length - 1;
}

// How many of the fill columns [begin, begin + length) are of the tail: the last ones.
int64_t TailOf(const Fill& fill, int64_t begin, int64_t length) {
  if (!fill.tail) return 0;
  return std::clamp<int64_t>(begin + length - fill.tail->from, 0, length);
}

}  // namespace

Cuts CutsOf(absl::Span<const IndexMap> partition, absl::Span<const int64_t> ranks) {
  Cuts cuts;
  if (Chain(partition, ranks, cuts.runs)) return cuts;
  cuts.runs = Merge(partition, ranks);
  for (size_t i = 1; i < cuts.runs.size(); ++i) {
    const Cut& before = cuts.runs[i - 1];
    if (cuts.runs[i].column < before.column + before.length) cuts.disjoint = false;
  }
  return cuts;
}

GeneratedRow::GeneratedRow(const std::vector<Segment>& of) {
  segments.reserve(of.size());
  positions.Reserve(of.size());
  int64_t at = 0;
  for (const Segment& segment : of) {
    if (segment.length == 0) continue;
    segments.push_back(segment);
    positions.Append({at, segment.length});
    at += segment.length + 1;  // a gap, so that no two runs merge
  }
}

Moves CutMoves(const IndexMap& placement, const Cuts& cuts, const Fill& fill) {
  MoveList moves(cuts, placement.runs().size());
  RunCursor cursor(placement);
  for (const Cut& cut : cuts.runs) {
    cursor.ForRuns(cut.column, cut.length, [&](size_t i, int64_t begin, int64_t take) {
      const int64_t into_run = begin - placement.starts()[i];
      const int64_t to = cut.slot + (begin - cut.column);
      const bool is_fill = placement.runs()[i].source == kFill;
      const int64_t tail = is_fill ? TailOf(fill, begin, take) : 0;
      if (take > tail) {
        Move& move = moves.Add(begin);
        move.dest = cut.dest;
        move.to = to;
        move.length = take - tail;
        if (!is_fill) {
          move.from = placement.runs()[i].source + into_run;
        } else if (fill.kind == Fill::Kind::kContinue && Anchor(placement, i) != kFill) {
          move.kind = Move::Kind::kContinue;
          move.from = Anchor(placement, i);
          move.start = into_run + 1;
        } else {
          move.kind = Move::Kind::kFill;
        }
      }
      if (tail == 0) return;
      Move& move = moves.Add(begin + (take - tail));
      move.kind = Move::Kind::kRamp;
      move.dest = cut.dest;
      move.to = to + (take - tail);
      move.length = tail;
      move.start = fill.tail->value;
    });
  }
  return moves.Take();
}

Moves GeneratedMoves(const GeneratedRow& row, bool over_padded_columns, const IndexMap& placement,
                     const Cuts& cuts) {
  const IndexMap whole = IndexMap::Identity(row.positions.size());
  const IndexMap& columns = over_padded_columns ? whole : placement;
  MoveList moves(cuts, columns.runs().size() + row.segments.size());
  RunCursor cursor(columns), values(row.positions);
  for (const Cut& cut : cuts.runs) {
    cursor.ForRuns(cut.column, cut.length, [&](size_t i, int64_t begin, int64_t take) {
      const int64_t to = cut.slot + (begin - cut.column);
      if (columns.runs()[i].source == kFill) {
        Move& move = moves.Add(begin);
        move.kind = Move::Kind::kFill;
        move.dest = cut.dest;
        move.to = to;
        move.length = take;
        return;
      }
      const int64_t source = columns.runs()[i].source + (begin - columns.starts()[i]);
      values.ForRuns(source, take, [&](size_t s, int64_t at, int64_t part) {
        const Segment& segment = row.segments[s];
        Move& move = moves.Add(begin + (at - source));
        move.kind = Move::Kind::kRamp;
        move.step = static_cast<uint8_t>(segment.step);
        move.dest = cut.dest;
        move.to = to + (at - source);
        move.length = part;
        move.start = segment.start + segment.step * (at - row.positions.starts()[s]);
      });
    });
  }
  return moves.Take();
}

SlotMoves BySlot(const std::vector<Moves>& rows, size_t num_dests) {
  SlotMoves slots;
  slots.of.assign(num_dests, std::vector<Moves>(rows.size()));
  slots.computed_columns.assign(num_dests, 0);
  auto computed = std::make_shared<std::vector<Moves>>(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const Move& move : rows[row]) slots.of[move.dest][row].push_back(move);
    for (size_t dest = 0; dest < num_dests; ++dest) {
      Moves& moves = slots.of[dest][row];
      const auto before = [](const Move& a, const Move& b) { return a.to < b.to; };
      if (!std::is_sorted(moves.begin(), moves.end(), before)) {
        std::sort(moves.begin(), moves.end(), before);
      }
      int64_t columns = 0;
      for (Move move : moves) {
        if (move.kind == Move::Kind::kCopy) continue;
        move.to = columns;
        columns += move.length;
        (*computed)[row].push_back(move);
      }
      slots.computed_columns[dest] = std::max(slots.computed_columns[dest], columns);
    }
  }
  slots.computed = std::move(computed);
  return slots;
}

}  // namespace cpshard
