// The order of cuts and moves. The reference here makes the moves destination by destination,
// column by column, and sorts them; maps and segments are random, seeds fixed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/exec/moves.h"
#include "core/plan/partition.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Move::Kind;

IndexMap MapOf(const std::vector<Run>& runs) {
  IndexMap map;
  for (const Run& run : runs) map.Append(run);
  return map;
}

// What one padded column is made of, and which run or segment that comes from.
struct Cell {
  Kind kind = Kind::kFill;
  uint8_t step = 0;
  int64_t from = 0, start = 0;
  std::vector<size_t> origin;
};

// One move per stretch of a run whose columns have one origin; sorted by the column, else as made:
// destination by destination, slot by slot.
template <typename CellAt>
Moves Reference(const std::vector<IndexMap>& partition, CellAt cell_at) {
  std::vector<std::pair<int64_t, Move>> placed;
  for (size_t dest = 0; dest < partition.size(); ++dest) {
    int64_t slot = 0;
    for (const Run& run : partition[dest].runs()) {
      std::vector<size_t> origin;
      for (int64_t i = 0; i < run.length; ++i, ++slot) {
        const Cell cell = cell_at(run.source + i);
        if (i == 0 || cell.origin != origin) {
          Move move{cell.kind, cell.step, static_cast<int32_t>(dest), cell.from, slot, 0};
          move.start = cell.start;
          placed.emplace_back(run.source + i, move);
          origin = cell.origin;
        }
        ++placed.back().second.length;
      }
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Moves moves;
  for (const auto& [column, move] : placed) moves.push_back(move);
  return moves;
}

Cell ViewedCell(const IndexMap& placement, int64_t column, Fill::Kind fill) {
  const size_t run = placement.RunAt(column);
  Cell cell;
  cell.origin = {run};
  if (placement.At(column) != kFill) {
    cell.kind = Kind::kCopy;
    cell.from = placement.At(column);
  } else if (fill == Fill::Kind::kContinue && run > 0) {
    cell.kind = Kind::kContinue;
    cell.from = placement.At(placement.starts()[run] - 1);
    cell.start = column - placement.starts()[run] + 1;
  }
  return cell;
}

Cell GeneratedCell(const std::vector<Segment>& segments, int64_t position, size_t run) {
  size_t s = 0;
  for (; position >= segments[s].length; ++s) position -= segments[s].length;
  Cell cell;
  cell.kind = Kind::kRamp;
  cell.step = static_cast<uint8_t>(segments[s].step);
  cell.start = segments[s].start + segments[s].step * position;
  cell.origin = {run, s};
  return cell;
}

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}

  int64_t Upto(int64_t most) { return static_cast<int64_t>(random_() % (most + 1)); }

  // Runs from anywhere in `columns`, with fill or without.
  IndexMap Map(int64_t size, int64_t columns, bool fill) {
    IndexMap map;
    while (map.size() < size) {
      const int64_t source = fill && Upto(2) == 0 ? kFill : Upto(columns - 1);
      const int64_t most = source == kFill ? size : columns - source;
      map.Append({source, std::min(1 + Upto(std::min<int64_t>(most - 1, 8)), size - map.size())});
    }
    return map;
  }

  // Parts of all columns for any rank in turn; ranks hold theirs in order, back to front, or also
  // what another holds.
  std::vector<IndexMap> Partition(int64_t columns) {
    std::vector<std::vector<Run>> runs(1 + Upto(6));
    const int64_t longest = 1 + Upto(9);
    for (int64_t begin = 0; begin < columns;) {
      const int64_t length = std::min(1 + Upto(longest), columns - begin);
      runs[Upto(static_cast<int64_t>(runs.size()) - 1)].push_back({begin, length});
      begin += length;
    }
    if (Upto(3) == 0) std::reverse(runs[0].begin(), runs[0].end());
    std::vector<IndexMap> partition;
    for (const std::vector<Run>& of_rank : runs) partition.push_back(MapOf(of_rank));
    if (Upto(2) == 0) partition.push_back(Map(Upto(20), columns, false));
    if (Upto(4) == 0) partition.push_back(IndexMap::Identity(columns));
    return partition;
  }

  std::vector<Segment> Segments(int64_t length) {
    std::vector<Segment> segments;
    for (int64_t left = length; left > 0; left -= segments.back().length) {
      segments.push_back({Upto(9), Upto(1), Upto(std::min<int64_t>(left, 7))});
    }
    return segments;
  }

 private:
  std::mt19937 random_;
};

std::vector<int64_t> AllRanks(const std::vector<IndexMap>& partition) {
  std::vector<int64_t> ranks(partition.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(CutsOf, AreAllRunsInTheOrderOfTheColumns) {
  const std::vector<IndexMap> partition = {MapOf({{0, 2}, {6, 2}}), MapOf({{4, 2}, {2, 2}})};
  const Cuts cuts = CutsOf(partition, {0, 1});
  EXPECT_THAT(cuts.runs,
              ElementsAre(Cut{0, 0, 2, 0}, Cut{2, 2, 2, 1}, Cut{4, 0, 2, 1}, Cut{6, 2, 2, 0}));
  EXPECT_TRUE(cuts.disjoint);
}

TEST(CutsOf, NumberTheRanksAskedForInTheirOrder) {
  const std::vector<IndexMap> partition = {MapOf({{0, 2}}), MapOf({{2, 3}}), MapOf({{5, 1}})};
  EXPECT_THAT(CutsOf(partition, {2, 0}).runs, ElementsAre(Cut{0, 0, 2, 1}, Cut{5, 0, 1, 0}));
  EXPECT_THAT(CutsOf(partition, {}).runs, IsEmpty());
}

TEST(CutsOf, SayWhetherAColumnIsInTwoOfThem) {
  const std::vector<IndexMap> whole(2, IndexMap::Identity(4));
  const Cuts cuts = CutsOf(whole, {0, 1});
  EXPECT_THAT(cuts.runs, ElementsAre(Cut{0, 0, 4, 0}, Cut{0, 0, 4, 1}));
  EXPECT_FALSE(cuts.disjoint);
  EXPECT_TRUE(CutsOf(whole, {1}).disjoint);
  EXPECT_FALSE(CutsOf({MapOf({{0, 5}, {3, 1}})}, {0}).disjoint);
}

TEST(CutsOf, OfAnyNumberOfRanksAreMergedInOrder) {
  for (int64_t ranks = 1; ranks <= 17; ++ranks) {
    std::vector<IndexMap> partition(ranks);
    for (int64_t column = 0; column < 3 * ranks; ++column) {
      partition[(column * 7) % ranks].Append({column, 1});
    }
    int64_t next = 0;
    for (const Cut& cut : CutsOf(partition, AllRanks(partition)).runs) {
      EXPECT_EQ(cut.column, next);
      next += cut.length;
    }
    EXPECT_EQ(next, 3 * ranks);
  }
}

// The runs of these ranks, sorted.
std::vector<Cut> SortedRuns(const std::vector<IndexMap>& partition,
                            const std::vector<int64_t>& ranks) {
  std::vector<Cut> cuts;
  for (size_t dest = 0; dest < ranks.size(); ++dest) {
    int64_t slot = 0;
    for (const Run& run : partition[ranks[dest]].runs()) {
      cuts.push_back({run.source, slot, run.length, static_cast<int32_t>(dest)});
      slot += run.length;
    }
  }
  std::stable_sort(cuts.begin(), cuts.end(),
                   [](const Cut& a, const Cut& b) { return a.column < b.column; });
  return cuts;
}

TEST(CutsOf, OfHeadsAndTailsAreInOrderWhicheverRanksAreAskedFor) {
  for (int64_t cp_size = 1; cp_size <= 9; ++cp_size) {
    std::vector<int64_t> boundaries = {0};
    for (int64_t pieces : {3, 0, 1, 2, 0}) {
      boundaries.push_back(boundaries.back() + 2 * cp_size * pieces);
    }
    const std::vector<IndexMap> partition =
        TePartition(boundaries, boundaries.back(), cp_size).value();
    std::vector<int64_t> ranks = AllRanks(partition);
    for (int turn = 0; turn < 3; ++turn) {
      const Cuts cuts = CutsOf(partition, ranks);
      EXPECT_EQ(cuts.runs, SortedRuns(partition, ranks));
      EXPECT_TRUE(cuts.disjoint);
      std::reverse(ranks.begin(), ranks.end());
      if (ranks.size() > 1) ranks.pop_back();
    }
  }
}

TEST(CutsOf, OfRunsThatGoOnButOverlapAreInOrderToo) {
  // Rank 0 and rank 1 both go on behind rank 0's first run.
  const std::vector<IndexMap> partition = {MapOf({{0, 2}, {4, 1}}), MapOf({{2, 2}}),
                                           MapOf({{2, 2}, {0, 2}})};
  for (const std::vector<int64_t>& ranks :
       std::vector<std::vector<int64_t>>{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}) {
    const Cuts cuts = CutsOf(partition, ranks);
    EXPECT_EQ(cuts.runs, SortedRuns(partition, ranks));
    EXPECT_FALSE(cuts.disjoint);
  }
}

TEST(CutMoves, AreThoseOfTheReferenceInItsOrder) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const int64_t columns = 1 + random.Upto(60);
    const IndexMap placement = random.Map(columns, 1 + random.Upto(80), true);
    const std::vector<IndexMap> partition = random.Partition(columns);
    const Cuts cuts = CutsOf(partition, AllRanks(partition));
    for (Fill::Kind fill : {Fill::Kind::kConstant, Fill::Kind::kContinue}) {
      ASSERT_EQ(
          CutMoves(placement, cuts, Fill{fill}),
          Reference(partition, [&](int64_t column) { return ViewedCell(placement, column, fill); }))
          << "seed " << seed;
    }
  }
}

TEST(GeneratedMoves, AreThoseOfTheReferenceInItsOrder) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const int64_t columns = 1 + random.Upto(60), source_len = 1 + random.Upto(80);
    const IndexMap placement = random.Map(columns, source_len, true);
    const std::vector<IndexMap> partition = random.Partition(columns);
    const Cuts cuts = CutsOf(partition, AllRanks(partition));
    const std::vector<Segment> segments = random.Segments(source_len);
    ASSERT_EQ(GeneratedMoves(GeneratedRow(segments), false, placement, cuts),
              Reference(partition,
                        [&](int64_t column) {
                          const int64_t source = placement.At(column);
                          return source == kFill
                                     ? ViewedCell(placement, column, Fill::Kind::kConstant)
                                     : GeneratedCell(segments, source, placement.RunAt(column));
                        }))
        << "seed " << seed;
    const std::vector<Segment> padded = random.Segments(columns);
    ASSERT_EQ(
        GeneratedMoves(GeneratedRow(padded), true, placement, cuts),
        Reference(partition, [&](int64_t column) { return GeneratedCell(padded, column, 0); }))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace cpshard
