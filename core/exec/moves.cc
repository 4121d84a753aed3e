#include "core/exec/moves.h"

#include <algorithm>
#include <utility>

namespace cpshard {
namespace {

struct Placed {
  int64_t column;  // padded column where the move begins
  Move move;
};

Moves InColumnOrder(std::vector<Placed> placed) {
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.column < b.column; });
  Moves moves;
  moves.reserve(placed.size());
  for (const Placed& p : placed) moves.push_back(p.move);
  return moves;
}

// Calls fn(run of `map`, first position of the overlap, length) for every run of `map` that the
// positions [begin, begin + length) touch.
template <typename Fn>
void ForRuns(const IndexMap& map, int64_t begin, int64_t length, Fn fn) {
  for (size_t i = length > 0 ? map.RunAt(begin) : 0; length > 0; ++i) {
    const int64_t take = std::min(length, map.starts()[i] + map.runs()[i].length - begin);
    fn(i, begin, take);
    begin += take;
    length -= take;
  }
}

// Calls fn(padded column, local slot, length, dest) for every run of every rank.
template <typename Fn>
void ForCuts(absl::Span<const IndexMap> partition, Fn fn) {
  for (size_t dest = 0; dest < partition.size(); ++dest) {
    const IndexMap& local = partition[dest];
    for (size_t i = 0; i < local.runs().size(); ++i) {
      fn(local.runs()[i].source, local.starts()[i], local.runs()[i].length,
         static_cast<int32_t>(dest));
    }
  }
}

// The column that the fill run `i` of a placement continues, or kFill.
int64_t Anchor(const IndexMap& placement, size_t i) {
  if (i == 0) return kFill;
  const Run& before = placement.runs()[i - 1];  // not fill: fill runs merge
  return before.source + before.length - 1;
}

IndexMap SegmentMap(const std::vector<Segment>& segments) {
  IndexMap map;  // positions of the segments; sources are spaced so that none merge
  int64_t at = 0;
  for (const Segment& segment : segments) {
    map.Append({at, segment.length});
    at += segment.length + 1;
  }
  return map;
}

}  // namespace

Moves CutMoves(const IndexMap& placement, absl::Span<const IndexMap> partition, Fill::Kind fill) {
  std::vector<Placed> placed;
  ForCuts(partition, [&](int64_t column, int64_t slot, int64_t length, int32_t dest) {
    ForRuns(placement, column, length, [&](size_t i, int64_t begin, int64_t take) {
      const int64_t into_run = begin - placement.starts()[i];
      Move move{Move::Kind::kCopy, 0, dest, 0, slot + (begin - column), take, 0};
      if (placement.runs()[i].source != kFill) {
        move.from = placement.runs()[i].source + into_run;
      } else if (fill == Fill::Kind::kContinue && Anchor(placement, i) != kFill) {
        move.kind = Move::Kind::kContinue;
        move.from = Anchor(placement, i);
        move.start = into_run + 1;
      } else {
        move.kind = Move::Kind::kFill;
      }
      placed.push_back({begin, move});
    });
  });
  return InColumnOrder(std::move(placed));
}

Moves GeneratedMoves(const std::vector<Segment>& segments, bool over_padded_columns,
                     const IndexMap& placement, absl::Span<const IndexMap> partition) {
  std::vector<Segment> nonempty;
  for (const Segment& segment : segments) {
    if (segment.length > 0) nonempty.push_back(segment);
  }
  const IndexMap map = SegmentMap(nonempty);
  const IndexMap whole = IndexMap::Identity(map.size());
  const IndexMap& columns = over_padded_columns ? whole : placement;
  std::vector<Placed> placed;
  ForCuts(partition, [&](int64_t column, int64_t slot, int64_t length, int32_t dest) {
    ForRuns(columns, column, length, [&](size_t i, int64_t begin, int64_t take) {
      const int64_t to = slot + (begin - column);
      if (columns.runs()[i].source == kFill) {
        placed.push_back({begin, Move{Move::Kind::kFill, 0, dest, 0, to, take, 0}});
        return;
      }
      const int64_t source = columns.runs()[i].source + (begin - columns.starts()[i]);
      ForRuns(map, source, take, [&](size_t s, int64_t at, int64_t part) {
        const Segment& segment = nonempty[s];
        Move move{Move::Kind::kRamp,
                  static_cast<uint8_t>(segment.step),
                  dest,
                  0,
                  to + (at - source),
                  part,
                  0};
        move.start = segment.start + segment.step * (at - map.starts()[s]);
        placed.push_back({begin + (at - source), move});
      });
    });
  });
  return InColumnOrder(std::move(placed));
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
      std::sort(moves.begin(), moves.end(),
                [](const Move& a, const Move& b) { return a.to < b.to; });
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
