// CutMoves and GeneratedMoves against a statement column by column: what stands on padded column c
// is placement(c), and rank r's slot s holds padded column partition[r](s). Their order and number
// are in moves_order_test.cc.
#include "core/exec/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using Kind = Move::Kind;

Cuts CutsOfAll(const std::vector<IndexMap>& partition) {
  std::vector<int64_t> ranks(partition.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return CutsOf(partition, ranks);
}

IndexMap MapOf(const std::vector<int64_t>& columns) {
  IndexMap map;
  for (int64_t column : columns) map.Append({column, 1});
  return map;
}

// The moves of all ranks.
Moves CutAll(const IndexMap& placement, const std::vector<IndexMap>& partition, Fill::Kind fill) {
  return CutMoves(placement, CutsOfAll(partition), Fill{fill});
}

Moves GenerateAll(const std::vector<Segment>& segments, bool over_padded_columns,
                  const IndexMap& placement, const std::vector<IndexMap>& partition) {
  return GeneratedMoves(GeneratedRow(segments), over_padded_columns, placement,
                        CutsOfAll(partition));
}

// "column 3", "fill", "column 2 + 1", "value 7": what stands in one slot.
std::string CellOf(const Move& move, int64_t i) {
  switch (move.kind) {
    case Kind::kCopy:
      return "column " + std::to_string(move.from + i);
    case Kind::kFill:
      return "fill";
    case Kind::kContinue:
      return "column " + std::to_string(move.from) + " + " + std::to_string(move.start + i);
    case Kind::kRamp:
      return "value " + std::to_string(move.start + move.step * i);
  }
  return "?";
}

// The slots of every destination as the moves fill them; every slot exactly once, in the order of
// the padded columns.
std::vector<std::vector<std::string>> Carry(const Moves& moves,
                                            const std::vector<IndexMap>& partition) {
  std::vector<std::vector<std::string>> slots;
  for (const IndexMap& local : partition) slots.emplace_back(local.size());
  int64_t last_column = -1;
  for (const Move& move : moves) {
    EXPECT_GT(move.length, 0);
    const int64_t column = partition.at(move.dest).At(move.to);
    EXPECT_GE(column, last_column);
    last_column = column;
    for (int64_t i = 0; i < move.length; ++i) {
      std::string& slot = slots.at(move.dest).at(move.to + i);
      EXPECT_EQ(slot, "");
      slot = CellOf(move, i);
    }
  }
  return slots;
}

// What stands on padded column `column`, by the words of plan.h.
std::string Cell(const std::vector<int64_t>& placement, int64_t column, Fill::Kind fill) {
  if (placement[column] != kFill) return "column " + std::to_string(placement[column]);
  if (fill != Fill::Kind::kContinue) return "fill";
  int64_t before = column;
  while (before >= 0 && placement[before] == kFill) --before;
  if (before < 0) return "fill";
  return "column " + std::to_string(placement[before]) + " + " + std::to_string(column - before);
}

std::vector<std::vector<std::string>> Expected(const std::vector<IndexMap>& partition,
                                               const std::vector<std::string>& cells) {
  std::vector<std::vector<std::string>> slots;
  for (const IndexMap& local : partition) {
    slots.emplace_back();
    for (int64_t column : local.Expand()) slots.back().push_back(cells.at(column));
  }
  return slots;
}

// Partitions of `columns` columns: every split in two, ascending; one rank in reverse; none at all;
// and one column held by both.
std::vector<std::vector<IndexMap>> PartitionsOf(int64_t columns) {
  std::vector<std::vector<IndexMap>> partitions = {{}};
  for (int64_t split = 0; split < (1 << columns); ++split) {
    std::vector<int64_t> a, b;
    for (int64_t column = 0; column < columns; ++column) {
      (split >> column & 1 ? a : b).push_back(column);
    }
    partitions.push_back({MapOf(a), MapOf(b)});
  }
  std::vector<int64_t> reversed;
  for (int64_t column = columns; column-- > 0;) reversed.push_back(column);
  partitions.push_back({MapOf(reversed)});
  if (columns > 0) partitions.push_back({IndexMap::Identity(columns), MapOf({columns - 1})});
  return partitions;
}

// Calls fn for every vector of `size` entries from -1 ... 2.
template <typename Fn>
void ForPlacements(int64_t size, Fn fn) {
  const int64_t count = int64_t{1} << (2 * size);
  for (int64_t code = 0; code < count; ++code) {
    std::vector<int64_t> placement;
    for (int64_t i = 0; i < size; ++i) placement.push_back((code >> (2 * i) & 3) - 1);
    fn(placement);
  }
}

TEST(CutMoves, PutEveryPlacedColumnInItsSlot) {
  for (int64_t size = 0; size <= 4; ++size) {
    const std::vector<std::vector<IndexMap>> partitions = PartitionsOf(size);
    ForPlacements(size, [&](const std::vector<int64_t>& placement) {
      for (Fill::Kind fill : {Fill::Kind::kConstant, Fill::Kind::kContinue}) {
        std::vector<std::string> cells;
        for (int64_t c = 0; c < size; ++c) cells.push_back(Cell(placement, c, fill));
        for (const std::vector<IndexMap>& partition : partitions) {
          ASSERT_EQ(Carry(CutAll(MapOf(placement), partition, fill), partition),
                    Expected(partition, cells))
              << MapOf(placement).ToString();
        }
      }
    });
  }
}

// Fill columns from the tail on have its value, however the partition cuts them.
TEST(CutMoves, GiveFillColumnsOfTheTailItsValue) {
  for (int64_t size = 0; size <= 4; ++size) {
    const std::vector<std::vector<IndexMap>> partitions = PartitionsOf(size);
    for (int64_t from = 0; from <= size + 1; ++from) {
      const Fill fill{Fill::Kind::kConstant, {}, Fill::Tail{from, -100}};
      ForPlacements(size, [&](const std::vector<int64_t>& placement) {
        std::vector<std::string> cells;
        for (int64_t c = 0; c < size; ++c) {
          const bool in_tail = placement[c] == kFill && c >= from;
          cells.push_back(in_tail ? "value -100" : Cell(placement, c, fill.kind));
        }
        for (const std::vector<IndexMap>& partition : partitions) {
          ASSERT_EQ(Carry(CutMoves(MapOf(placement), CutsOfAll(partition), fill), partition),
                    Expected(partition, cells))
              << MapOf(placement).ToString() << " from " << from;
        }
      });
    }
  }
}

TEST(CutMoves, AreAsFewAsTheRuns) {
  IndexMap placement = IndexMap::Identity(1'000'000);
  placement.Append({kFill, 24});
  IndexMap first, second;
  first.Append({0, 500'000});
  second.Append({500'000, 500'024});
  const std::vector<IndexMap> partition = {first, second};
  EXPECT_THAT(CutAll(placement, partition, Fill::Kind::kContinue),
              ElementsAre(Move{Kind::kCopy, 0, 0, 0, 0, 500'000, 0},
                          Move{Kind::kCopy, 0, 1, 500'000, 0, 500'000, 0},
                          Move{Kind::kContinue, 0, 1, 999'999, 500'000, 24, 1}));
}

TEST(CutMoves, AFillThatIsCutInTwoGoesOnCountingInTheSecondPiece) {
  const std::vector<IndexMap> partition = {MapOf({0, 1, 2}), MapOf({3, 4, 5})};
  EXPECT_THAT(
      CutAll(MapOf({7, -1, -1, -1, -1, 9}), partition, Fill::Kind::kContinue),
      ElementsAre(Move{Kind::kCopy, 0, 0, 7, 0, 1, 0}, Move{Kind::kContinue, 0, 0, 7, 1, 2, 1},
                  Move{Kind::kContinue, 0, 1, 7, 0, 2, 3}, Move{Kind::kCopy, 0, 1, 9, 2, 1, 0}));
}

std::vector<int64_t> ValuesOf(const std::vector<Segment>& segments) {
  std::vector<int64_t> values;
  for (const Segment& segment : segments) {
    for (int64_t i = 0; i < segment.length; ++i) {
      values.push_back(segment.start + segment.step * i);
    }
  }
  return values;
}

// Segments of `length` positions in all, some of them empty.
std::vector<Segment> RandomSegments(std::mt19937& random, int64_t length) {
  std::vector<Segment> segments;
  for (int64_t left = length; left > 0;) {
    const int64_t take = static_cast<int64_t>(random() % (left + 1));
    segments.push_back(
        {static_cast<int64_t>(random() % 90) - 30, static_cast<int64_t>(random() % 2), take});
    left -= take;
  }
  return segments;
}

TEST(GeneratedMoves, PutTheValueOfEverySourceColumnInItsSlot) {
  std::mt19937 random(3);
  for (int64_t size = 0; size <= 4; ++size) {
    const std::vector<std::vector<IndexMap>> partitions = PartitionsOf(size);
    ForPlacements(size, [&](const std::vector<int64_t>& placement) {
      const std::vector<Segment> segments = RandomSegments(random, 3);
      const std::vector<int64_t> values = ValuesOf(segments);
      std::vector<std::string> cells;
      for (int64_t column : placement) {
        cells.push_back(column == kFill ? "fill" : "value " + std::to_string(values[column]));
      }
      for (const std::vector<IndexMap>& partition : partitions) {
        ASSERT_EQ(Carry(GenerateAll(segments, false, MapOf(placement), partition), partition),
                  Expected(partition, cells));
      }
    });
  }
}

TEST(GeneratedMoves, OverPaddedColumnsDoNotLookAtThePlacement) {
  std::mt19937 random(5);
  for (int64_t size = 0; size <= 6; ++size) {
    IndexMap placement;
    placement.Append({kFill, size});
    for (const std::vector<IndexMap>& partition : PartitionsOf(size)) {
      const std::vector<Segment> segments = RandomSegments(random, size);
      std::vector<std::string> cells;
      for (int64_t value : ValuesOf(segments)) cells.push_back("value " + std::to_string(value));
      ASSERT_EQ(Carry(GenerateAll(segments, true, placement, partition), partition),
                Expected(partition, cells));
    }
  }
}

TEST(GeneratedMoves, AreAsFewAsTheSegments) {
  const std::vector<IndexMap> partition = {IndexMap::Identity(1000)};
  const std::vector<Segment> segments = {{0, 1, 600}, {5, 0, 0}, {0, 0, 400}};
  EXPECT_THAT(
      GenerateAll(segments, true, IndexMap::Identity(1000), partition),
      ElementsAre(Move{Kind::kRamp, 1, 0, 0, 0, 600, 0}, Move{Kind::kRamp, 0, 0, 0, 600, 400, 0}));
}

TEST(BySlot, PutsEveryDestinationInTheOrderOfItsSlots) {
  const std::vector<Moves> rows = {{{Kind::kCopy, 0, 1, 0, 5, 2, 0},
                                    {Kind::kCopy, 0, 0, 2, 0, 3, 0},
                                    {Kind::kFill, 0, 1, 0, 0, 5, 0}},
                                   {}};
  const SlotMoves slots = BySlot(rows, 3);
  EXPECT_THAT(slots.of, ElementsAre(ElementsAre(Moves{{Kind::kCopy, 0, 0, 2, 0, 3, 0}}, Moves{}),
                                    ElementsAre(Moves{{Kind::kFill, 0, 1, 0, 0, 5, 0},
                                                      {Kind::kCopy, 0, 1, 0, 5, 2, 0}},
                                                Moves{}),
                                    ElementsAre(Moves{}, Moves{})));
}

TEST(BySlot, MovesTogetherWhatIsNoCopy) {
  const std::vector<Moves> rows = {
      {{Kind::kFill, 0, 0, 0, 7, 3, 0},
       {Kind::kCopy, 0, 0, 2, 4, 3, 0},
       {Kind::kContinue, 0, 0, 4, 2, 2, 1},
       {Kind::kCopy, 0, 0, 0, 0, 2, 0}},
      {{Kind::kRamp, 1, 0, 0, 8, 2, 30}, {Kind::kCopy, 0, 0, 0, 0, 8, 0}}};
  const SlotMoves slots = BySlot(rows, 1);
  EXPECT_THAT(*slots.computed, ElementsAre(Moves{{Kind::kContinue, 0, 0, 4, 0, 2, 1},
                                                 {Kind::kFill, 0, 0, 0, 2, 3, 0}},
                                           Moves{{Kind::kRamp, 1, 0, 0, 0, 2, 30}}));
  EXPECT_THAT(slots.computed_columns, ElementsAre(5));
}

}  // namespace
}  // namespace cpshard
