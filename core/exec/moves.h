// From maps to moves: which columns of a stream go to which slots of which ranks.
#pragma once

#include <memory>
#include <vector>

#include "core/exec/task.h"
#include "core/plan/plan.h"

namespace cpshard {

// A run of a destination's part: padded columns [column, column + length) become its slots from
// `slot` on.
struct Cut {
  int64_t column = 0, slot = 0, length = 0;
  int32_t dest = 0;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// The runs of all destinations in the order of the padded columns; of one column, in the order of
// the destinations and their slots.
struct Cuts {
  std::vector<Cut> runs;
  bool disjoint = true;  // no column is in two of them
};

// Destination k takes partition[ranks[k]]. Made once for all streams that are cut alike.
Cuts CutsOf(absl::Span<const IndexMap> partition, absl::Span<const int64_t> ranks);

// The segments of a generated row, made ready to be looked up.
struct GeneratedRow {
  explicit GeneratedRow(const std::vector<Segment>& of);

  std::vector<Segment> segments;  // without the empty ones
  IndexMap positions;             // run i = segments[i]; what it maps to has no meaning
};

// Moves of one row of a viewed stream: `cuts` out of the row placed by `placement`. Fill columns
// become kFill, or kContinue from the last source column before them (kFill where there is none);
// those of the fill's tail kRamp.
// In the order of the padded columns (of one column, as in Cuts), so that the source is walked once
// for all destinations. Cost: cuts and moves, where both maps mostly ascend.
Moves CutMoves(const IndexMap& placement, const Cuts& cuts, const Fill& fill);

// The same for a generated row; its segments cover the columns that the cuts take.
Moves GeneratedMoves(const GeneratedRow& row, bool over_padded_columns, const IndexMap& placement,
                     const Cuts& cuts);

// Moves seen from their destinations, as somebody needs them who sends copies from where they lie.
struct SlotMoves {
  std::vector<std::vector<Moves>> of;  // [dest][row], in the order of the slots

  // [row]: the moves that are no copies, each destination's moved together at its front.
  std::shared_ptr<const std::vector<Moves>> computed;
  std::vector<int64_t> computed_columns;  // [dest], in the row that has most
};

// Precondition: no two moves of a row fill the same slot of a destination; CutMoves and
// GeneratedMoves make none that do, for the slots are the positions of a map.
SlotMoves BySlot(const std::vector<Moves>& rows, size_t num_dests);

}  // namespace cpshard
