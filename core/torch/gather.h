// The gather and its gradient as plain functions of tensors: what the operators do on a real
// device, below autograd. One collective each.
//
//   local [..., L, ...] on axis `dim`, L = sizes[rank]; full [..., columns, ...]
//   forward   full[i] = shard of rank order[i] / max(sizes), its slot order[i] % max(sizes)
//   backward  local = the sum over all ranks of their gradients of this rank's columns (contract
//             9.4), to the bit as the reference adds them up; or this rank's own alone (slice)
//
// Any dtype; any rank from 1 on; empty tensors; any strides. Where local is on the CPU and the
// moves are long, memory is moved by `moves`, and straight from the collective into the result
// where the map allows; elsewhere by `order`. Before anything is sent: ValueError, tensors, sizes,
// order and moves do not fit each other (on a device the values of order are not looked at);
// TypeError, a tensor that is not strided, or quantized.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/torch/group.h"

namespace cpshard {

struct TokenGather {
  at::Tensor order;       // int64 [columns], on the device of the tensor
  at::Tensor moves;       // int64 [m, 4], on the CPU where the tensor is; not read elsewhere
  at::IntArrayRef sizes;  // [ranks of the group]
  int64_t dim = 1;        // >= 0
  TokenGroup group;       // of 2 ranks at least
};

// What autograd does with a gather: ranks must not differ in it where a collective comes of it.
enum class Gradient { kNone, kSum, kSlice };
Gradient GradientOf(bool needed, bool slice);

// `verb` is how an agreement and an error name it.
at::Tensor JoinTokens(const at::Tensor& local, const TokenGather& gather, Gradient gradient,
                      const char* verb);

// grad [..., columns, ...] -> [..., L, ...]. Slots that no column comes from get 0.
at::Tensor TokenGradient(const at::Tensor& grad, const TokenGather& gather, bool slice_gradient);

// Equal shards [..., L, ...] joined in rank order (contract 4.9), and back. A group of 2 at least.
// Each rank sees its own shard alone: without CPSHARD_CHECK, shards of different lengths fail
// inside the collective, or wait for its time-out.
at::Tensor JoinSequence(const at::Tensor& local, int64_t dim, const TokenGroup& group,
                        Gradient gradient);
at::Tensor SequenceGradient(const at::Tensor& grad, int64_t dim, const TokenGroup& group,
                            bool slice_gradient);

}  // namespace cpshard
