// The token verbs over tensors (contract sections 4.9 and 9): the contract's names, the reference's
// argument order. They decide by core/plan/token_verbs.h and call torch's operators, so whatever
// torch does with those (autograd, symbolic lengths under torch.compile, devices) it does with
// these.
//
// Exceptions: ValueError, a length or a missing fill (contract 13), positions beyond the padded
// length; NotImplementedError, nothing to trim to; IndexError, an axis that does not exist, an
// index outside the padded columns; TypeError, indices or positions that are no integers, a tensor
// that is not strided. Nothing is sent before they are raised; with CPSHARD_CHECK=1 (agreement.h)
// the other ranks raise too. The values of indices and positions are looked at on the CPU alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/torch/group.h"
#include "core/torch/token_map.h"

namespace cpshard {

// What a batch's layout says of itself, by the contract's names.
struct TokenTensorLayout {
  std::optional<c10::SymInt> original_seq_len, padded_seq_len;
  std::optional<std::vector<c10::SymInt>> input_row_shape;
  std::optional<at::Tensor> input_token_stream_positions;  // [B, S], -1 = dropped
  std::optional<c10::SymInt> expected_columns;  // of captured indices: those of all ranks together
};

// The rank's shard of a full tensor [..., S, ...], contiguous, of the same dtype (9.2). S may be
// the padded length, the original one with a `fill`, or the caller's coordinates of the layout.
// `indices` are the rank's padded columns, int64 1-D. Differentiable.
at::Tensor ShardTokenTensor(const at::Tensor& tensor, const at::Tensor& indices,
                            const TokenTensorLayout& layout, int64_t seq_dim = 1,
                            const std::optional<at::Scalar>& fill = std::nullopt);

struct GatherTokenOptions {
  int64_t seq_dim = 1;             // negative counts from the end
  bool trim = false;               // back to the caller's coordinates
  std::optional<at::Scalar> fill;  // what stands where the caller's token was dropped
  bool slice_gradient = false;     // false: a shard's gradient is the sum over the ranks, as the
                                   // reference's: fits a loss of which each rank computes a part.
                                   // true: the own one alone: fits a loss that all compute in full
};

// The full tensor in global order from every rank's `tensor` [..., L, ...] (9.3): one collective,
// or none without a group, when the tensor itself comes back, unless the map is of one rank whose
// slots are in another order than the columns. Differentiable, once; integers have no gradient.
at::Tensor GatherTokenTensor(const at::Tensor& tensor, const TokenMap& map,
                             const TokenTensorLayout& layout, const TokenGroup& group,
                             const GatherTokenOptions& options = {});

// Without a layout, by the rank's indices alone. The gather asks the other ranks for theirs, as
// many on every rank: where that is not so, it fails or waits in the collective without
// CPSHARD_CHECK.
at::Tensor ShardTokenTensorByIndices(const at::Tensor& tensor, const at::Tensor& local_indices,
                                     int64_t seq_dim = 1);
at::Tensor GatherTokenTensorByIndices(const TokenGroup& group, const at::Tensor& tensor,
                                      const at::Tensor& local_indices, int64_t seq_dim = 1);

// Equal shards [B, L, ...] joined in rank order (4.9); the same tensor in a group of one. Shards of
// different lengths are found by CPSHARD_CHECK alone; without it the collective fails or waits.
at::Tensor GatherSequence(const at::Tensor& tensor, const TokenGroup& group, int64_t dim = 1,
                          bool slice_gradient = false);

}  // namespace cpshard
