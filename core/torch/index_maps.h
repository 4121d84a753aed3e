// Index maps (contract 2.7) and sharding inside a model's forward (4.6), over tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymInt.h>

#include <cstdint>

namespace cpshard {

// A place in a context-parallel group; {0, 1} without a mesh.
struct CpRank {
  int64_t rank = 0;
  int64_t size = 1;
};

// The padded columns of a rank, int64 [padded_seq_len / size] (of identity: all), in the order of
// its slots. ValueError, with the numbers: padded_seq_len is below 0, or not divisible by size, or
// by 2 * size; a rank that the group has not.
at::Tensor IdentityLocalIndices(c10::SymInt padded_seq_len, at::Device device = at::kCPU);
at::Tensor ContiguousLocalIndices(CpRank cp, c10::SymInt padded_seq_len,
                                  at::Device device = at::kCPU);
at::Tensor RoundRobinLocalIndices(CpRank cp, c10::SymInt padded_seq_len,
                                  at::Device device = at::kCPU);

struct LocalSequence {
  at::Tensor local;          // [..., padded / size, ...] on the sequence axis
  at::Tensor local_indices;  // int64 [padded / size]
  c10::SymInt padded_seq_len;
};

// The rank's part of a full tensor [..., S, ...] that a model makes in its forward, any rank and
// dtype, padded to 2 * size (round robin) or size * max(pad_multiple, 2) (contiguous).
// Differentiable. Size 1: the same tensor, not padded. IndexError: no such axis. ValueError: a rank
// that the group has not; a multiple beyond what a length can be.
struct SequenceOptions {
  int64_t seq_dim = 1;  // negative counts from the end
  at::Scalar pad_value = 0;
  int64_t pad_multiple = 1;  // of contiguous
};
LocalSequence ShardSequenceForCpRoundRobin(CpRank cp, const at::Tensor& tensor,
                                           const SequenceOptions& options = {});
LocalSequence ShardSequenceForCpContiguous(CpRank cp, const at::Tensor& tensor,
                                           const SequenceOptions& options = {});

// The columns `indices` (int64 1-D, >= 0, on the device of the tensor) of `tensor` as if it went on
// with `value` without an end. Only one column is appended, and no length is that of a pad: a
// compiled graph then does not tell a pad of 1 from one of 2. Differentiable.
at::Tensor SelectPadded(const at::Tensor& tensor, int64_t dim, const at::Tensor& indices,
                        const at::Scalar& value);

}  // namespace cpshard
