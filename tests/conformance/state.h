// What a layout keeps beside its outputs (`state` of a case). It does not travel: it is computed
// here, from what a trainer has in its hands - the batch that it sent and the shards that it got.
#pragma once

#include <vector>

#include "tests/conformance/answer.h"
#include "tests/conformance/target.h"

namespace cpshard::conformance {

// Contract 4.13: `doc_ids` i64 [1, P], every change of them as `packed_cu_seqlens` i64, and the
// first column of the rank, `row_offset`. Nothing at cp_size 1.
void AddBlockDiagonalState(const ShardCall& call, std::vector<RankAnswer>& ranks);

// Contract 7: `slot_indices(true)` i64 [L], total_tokens, pad_size, chunk_size. Nothing where no
// indices are reported.
void AddMagiState(const ShardCall& call, std::vector<RankAnswer>& ranks);

}  // namespace cpshard::conformance
