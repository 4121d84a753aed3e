// From maps to moves: which columns of a stream go to which slots of which ranks.
#pragma once

#include <memory>
#include <vector>

#include "core/exec/task.h"
#include "core/plan/plan.h"

namespace cpshard {

// Moves of one row of a viewed stream: partition[k] is cut out of the row placed by `placement`,
// into destination k. Fill columns become kFill, or kContinue from the last source column before
// them (kFill where there is none). In the order of the padded columns, so that the source is
// walked once for all ranks.
Moves CutMoves(const IndexMap& placement, absl::Span<const IndexMap> partition, Fill::Kind fill);

// The same for a generated row; the segments cover the columns that the partition takes.
Moves GeneratedMoves(const std::vector<Segment>& segments, bool over_padded_columns,
                     const IndexMap& placement, absl::Span<const IndexMap> partition);

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
