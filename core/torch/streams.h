// Cutting many whole streams of a batch at once, where they are, by the runs that a plan gives.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/exec/task.h"

namespace cpshard {

// A rank's shard of every stream: streams[i] [..., S, ...] on axis seq_dims[i] (negative counts
// from the end) becomes [..., sum of lengths, ...], contiguous. `runs`, int64 [n, 2] on the CPU:
// source column or -1 for fills[i], length; the same for all streams. One pass of the executor; no
// gradient. A stream that is expanded or strided on the axes before is read as it lies; one that is
// strided from that axis on (transposed) is copied first.
//
// The streams are all on the CPU, or all on one CUDA device: then this is one launch on torch's
// current stream, behind what is enqueued there. The host does not wait for it, but three calls at
// most are under way on a stream: a fourth waits until the first is done there, and with it all
// that was enqueued before that. So it does where its work table is above 2 MB. Not in the capture
// of a CUDA graph, for the work table comes from the host.
//
// ValueError: counts that disagree, a run that leaves a stream, a stream that requires grad,
// streams on two devices; IndexError: an axis that does not exist; TypeError: runs are not int64,
// elements of 16 bytes (complex128); RuntimeError: a fill that torch.full refuses (else it is what
// that makes of it: float8_e8m0fnu has no zero), a shard of more bytes than there can be. On a GPU
// also NotImplementedError: built without CUDA, the driver is too old, no machine code for it;
// OutOfMemoryError: its work table; RuntimeError: what CUDA says, a capture.
std::vector<at::Tensor> ShardStreams(at::TensorList streams, const at::Tensor& runs,
                                     at::IntArrayRef seq_dims, c10::ArrayRef<at::Scalar> fills);

// Who carries out tasks over the memory of tensors on a device.
using RunTasks = std::function<absl::Status(at::Device, absl::Span<const Task>)>;

// The same by `run`, which is not called where nothing has to be done.
std::vector<at::Tensor> ShardStreamsBy(const RunTasks& run, at::TensorList streams,
                                       const at::Tensor& runs, at::IntArrayRef seq_dims,
                                       c10::ArrayRef<at::Scalar> fills);

}  // namespace cpshard
