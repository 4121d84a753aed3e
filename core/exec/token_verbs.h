// The token verbs over bytes (contract section 9): a tensor of the caller's cut as the tokens of a
// batch were, and shards of one put back. core/torch has them for at::Tensor.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/exec/gather.h"
#include "core/plan/shard_layout.h"
#include "core/plan/token_tensor.h"

namespace cpshard {

// shard_token_tensor (9.2): the tensor as each rank of the map gets it. `layout` is what any rank
// reports; its fields 2 to 5 are read. Outputs are in pooled memory.
// Errors: those of PlanShardToken; InvalidArgument: an output over limits.max_batch_bytes, a tensor
// that ValidateSpec refuses; ResourceExhausted: the pool.
absl::StatusOr<std::vector<Tensor>> ShardTokenTensor(const ShardLayout& layout,
                                                     const HeldColumns& map, const Tensor& tensor,
                                                     const ShardTokenOptions& options,
                                                     const Limits& limits, Executor& executor,
                                                     BufferPool& pool);

// The same by the records that came with the shards: result i is what the rank of layouts[i] gets.
// One record is enough for one rank, where it reports a padded length or all ranks hold alike.
absl::StatusOr<std::vector<Tensor>> ShardTokenTensor(absl::Span<const ShardLayout> layouts,
                                                     const Tensor& tensor,
                                                     const ShardTokenOptions& options,
                                                     const Limits& limits, Executor& executor,
                                                     BufferPool& pool);

// gather_token_tensor (9.3) by a map instead of records, which Gather takes: parts[i] is rank i's.
// Errors: as Gather; InvalidArgument too for a length that the closed form does not divide.
absl::StatusOr<Tensor> GatherTokenTensor(const ShardLayout& layout, const HeldColumns& map,
                                         const std::vector<Tensor>& parts,
                                         const GatherOptions& options, const Limits& limits,
                                         Executor& executor, BufferPool& pool);

// gather_sequence (4.9): equal parts joined on `axis` in rank order; one part comes back as it is.
// InvalidArgument: no part; parts of several dtypes or shapes; no such axis.
absl::StatusOr<Tensor> GatherSequence(const std::vector<Tensor>& parts, int64_t axis,
                                      Executor& executor, BufferPool& pool);

// The left halo of every rank (4.18), [B, history, C], of its part [B, L, C]: the `history` columns
// before it, zero before the beginning. Errors: those of GatherSequence and PlanLeftHalo;
// InvalidArgument: outputs over limits.max_batch_bytes.
absl::StatusOr<std::vector<Tensor>> LeftHalos(const std::vector<Tensor>& parts, int64_t history,
                                              const Limits& limits, Executor& executor,
                                              BufferPool& pool);

}  // namespace cpshard
