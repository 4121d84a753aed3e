// Cutting many whole streams of a batch at once, on the CPU, by the runs that a plan gives.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <vector>

namespace cpshard {

// A rank's shard of every stream: streams[i] [..., S, ...] on axis seq_dims[i] (negative counts
// from the end) becomes [..., sum of lengths, ...], contiguous. `runs`, int64 [n, 2] on the CPU:
// source column or -1 for fills[i], length; the same for all streams. One pass of the executor; no
// gradient. ValueError: counts that disagree, a run that leaves a stream, a stream that requires
// grad or is not on the CPU; IndexError: an axis that does not exist; TypeError: runs are not
// int64, a dtype that batches do not have.
std::vector<at::Tensor> ShardStreams(at::TensorList streams, const at::Tensor& runs,
                                     at::IntArrayRef seq_dims, c10::ArrayRef<at::Scalar> fills);

}  // namespace cpshard
