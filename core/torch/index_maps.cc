#include "core/torch/index_maps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/torch/token_verbs.h"

namespace cpshard {
namespace {

at::Tensor Columns(const c10::SymInt& begin, const c10::SymInt& end, at::Device device) {
  return at::arange(at::Scalar(begin), at::Scalar(end),
                    at::TensorOptions(at::kLong).device(device));
}

using LocalIndices = at::Tensor (*)(CpRank, c10::SymInt, at::Device);

LocalSequence ShardSequence(CpRank cp, const at::Tensor& tensor, const SequenceOptions& options,
                            int64_t divisor, LocalIndices indices) {
  const int64_t dim = at::maybe_wrap_dim(options.seq_dim, tensor.dim(), /*wrap_scalar=*/false);
  const c10::SymInt length = tensor.sym_size(dim);
  if (cp.size <= 1) return {tensor, IdentityLocalIndices(length, tensor.device()), length};
  c10::SymInt padded = (length + (divisor - 1)) / divisor * divisor;
  at::Tensor columns = indices(cp, padded, tensor.device());
  at::Tensor local = padded == length ? ShardTokenTensorByIndices(tensor, columns, dim)
                                      : SelectPadded(tensor, dim, columns, options.pad_value);
  return {std::move(local), std::move(columns), std::move(padded)};
}

}  // namespace

at::Tensor IdentityLocalIndices(c10::SymInt padded_seq_len, at::Device device) {
  return Columns(0, padded_seq_len, device);
}

at::Tensor ContiguousLocalIndices(CpRank cp, c10::SymInt padded_seq_len, at::Device device) {
  TORCH_CHECK_VALUE(padded_seq_len % cp.size == 0,
                    "padded_seq_len must be divisible by cp_size, and ", padded_seq_len,
                    " is not by ", cp.size);
  const c10::SymInt slots = padded_seq_len / cp.size;
  return Columns(slots * cp.rank, slots * (cp.rank + 1), device);
}

at::Tensor RoundRobinLocalIndices(CpRank cp, c10::SymInt padded_seq_len, at::Device device) {
  TORCH_CHECK_VALUE(padded_seq_len % (2 * cp.size) == 0,
                    "padded_seq_len must be divisible by 2 * cp_size, and ", padded_seq_len,
                    " is not by ", 2 * cp.size);
  const c10::SymInt chunk = padded_seq_len / (2 * cp.size);
  const int64_t tail = 2 * cp.size - 1 - cp.rank;
  return at::cat({Columns(chunk * cp.rank, chunk * (cp.rank + 1), device),
                  Columns(chunk * tail, chunk * (tail + 1), device)});
}

LocalSequence ShardSequenceForCpRoundRobin(CpRank cp, const at::Tensor& tensor,
                                           const SequenceOptions& options) {
  return ShardSequence(cp, tensor, options, 2 * cp.size, RoundRobinLocalIndices);
}

LocalSequence ShardSequenceForCpContiguous(CpRank cp, const at::Tensor& tensor,
                                           const SequenceOptions& options) {
  return ShardSequence(cp, tensor, options, cp.size * std::max<int64_t>(options.pad_multiple, 2),
                       ContiguousLocalIndices);
}

at::Tensor SelectPadded(const at::Tensor& tensor, int64_t dim, const at::Tensor& indices,
                        const at::Scalar& value) {
  std::vector<c10::SymInt> sizes = tensor.sym_sizes().vec();
  const c10::SymInt length = std::exchange(sizes[dim], 1);
  const at::Tensor padded = at::cat({tensor, at::full_symint(sizes, value, tensor.options())}, dim);
  return padded.index_select(dim, indices.clamp_max(at::Scalar(length))).contiguous();
}

}  // namespace cpshard
