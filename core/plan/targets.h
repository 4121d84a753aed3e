// Future-token targets (contract 4.19): a stage before any layout. Per depth d = 1 ... num_depths
// every token gets what stands d tokens further in its own sequence, so that a shard's last token
// has its target although the next one lies on another rank.
#pragma once

#include <cstdint>

#include "core/plan/sharder.h"

namespace cpshard {

inline constexpr int64_t kMaxTargetDepths = 64;

// Runs of the depths' maps, cut by the ranks, all together: what such a plan takes in memory.
inline constexpr int64_t kMaxTargetRuns = int64_t{1} << 21;

struct TargetsOptions {
  int64_t num_depths = 1;
  int64_t ignore_index = -100;  // where a token has no target
};

// `inner` with target_input_ids.D, target_position_ids.D, targets.D and valid_masks.D (bool), D = d
// - 1, beside its outputs. They are of the dtype of input_ids, position_ids and labels, are padded
// and cut as the layout pads and cuts labels, and whole where it leaves those whole; where there is
// no token d further on, and on padding columns, they hold 0, 0, ignore_index and false.
// position_ids [1, S] become [B, S], absent ones i64 0 ... S-1, before the layout sees the batch.
// Sequences: SequenceIds.
//
// Plan refuses, beside what `inner` and SequenceIds refuse, with InvalidArgument: num_depths not in
// 1 ... kMaxTargetDepths; input_ids and labels that are not [B, S] both; position_ids that are
// neither [B, S], [1, S] nor [n, B, S]; an entry of the batch with the name of a target; an
// ignore_index that the dtype of labels cannot hold; more runs than kMaxTargetRuns.
// Thread-safe. Cost: runs; tokens where ids are read of each.
Sharder WithTargets(Sharder inner, TargetsOptions options);

}  // namespace cpshard
