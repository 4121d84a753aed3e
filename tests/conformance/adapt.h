// Some reference functions return less than the verb that is driven in their place, or call it
// otherwise: what of an answer is theirs, under their names.
#pragma once

#include "core/batch/batch.h"
#include "tests/conformance/answer.h"

namespace cpshard::conformance {

// The conversion alone: neither `_thd_local_indices` nor a layout.
void KeepConversion(const Batch& sent, RankAnswer& answer);

// Future-token targets (contract 4.19): the four tuples as `input_ids.D`, `position_ids.D`,
// `targets.D`, `valid_masks.D`, the sequence axis of the positions, and the normalised positions as
// `batch.position_ids`. What was sent, and the layout, is not theirs.
void KeepTargets(const Batch& sent, RankAnswer& answer);

}  // namespace cpshard::conformance
