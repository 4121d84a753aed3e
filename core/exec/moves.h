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

}  // namespace cpshard
