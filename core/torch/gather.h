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
// where the map allows; elsewhere by `order`. ValueError: tensors, sizes, order and moves do not
// fit each other; before anything is sent.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/torch/group.h"

namespace cpshard {

struct TokenGather {
  at::Tensor order;       // int64 [columns], on the device of the tensor
  at::Tensor moves;       // int64 [m, 4], on the CPU where the tensor is; not read elsewhere
  at::IntArrayRef sizes;  // [ranks of the group]
  int64_t dim = 1;        // >= 0
  Group group;            // of 2 ranks at least
};

// `verb` is how an agreement and an error name it.
at::Tensor JoinTokens(const at::Tensor& local, const TokenGather& gather, const char* verb);

// grad [..., columns, ...] -> [..., L, ...]. Slots that no column comes from get 0.
at::Tensor TokenGradient(const at::Tensor& grad, const TokenGather& gather, bool slice_gradient);

// Equal shards [..., L, ...] joined in rank order (contract 4.9), and back. Group of 2 at least.
at::Tensor JoinSequence(const at::Tensor& local, int64_t dim, const Group& group);
at::Tensor SequenceGradient(const at::Tensor& grad, int64_t dim, const Group& group,
                            bool slice_gradient);

}  // namespace cpshard
