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

void CheckRank(CpRank cp) {
  TORCH_CHECK_VALUE(cp.size >= 1 && cp.rank >= 0 && cp.rank < cp.size, "rank ", cp.rank,
                    " is none of a group of ", cp.size, "; it must be 0 ... size - 1");
}

void CheckLength(const c10::SymInt& padded_seq_len) {
  TORCH_CHECK_VALUE(padded_seq_len >= 0, "padded_seq_len is ", padded_seq_len,
                    "; it must be 0 at least");
}

// a * b, to which any length can be padded within int64.
int64_t Divisor(int64_t a, int64_t b, const char* what) {
  int64_t divisor = 0;
  TORCH_CHECK_VALUE(!__builtin_mul_overflow(a, b, &divisor) && divisor <= (int64_t{1} << 62), what,
                    " is ", a, " * ", b, ", which no length can be padded to");
  return divisor;
}

using LocalIndices = at::Tensor (*)(CpRank, c10::SymInt, at::Device);

LocalSequence ShardSequence(CpRank cp, const at::Tensor& tensor, const SequenceOptions& options,
                            int64_t divisor, LocalIndices indices) {
  const int64_t dim = at::maybe_wrap_dim(options.seq_dim, tensor.dim(), /*wrap_scalar=*/false);
  const c10::SymInt length = tensor.sym_size(dim);
  if (cp.size == 1) return {tensor, IdentityLocalIndices(length, tensor.device()), length};
  c10::SymInt padded = (length + (divisor - 1)) / divisor * divisor;
  at::Tensor columns = indices(cp, padded, tensor.device());
  at::Tensor local = padded == length ? ShardTokenTensorByIndices(tensor, columns, dim)
                                      : SelectPadded(tensor, dim, columns, options.pad_value);
  return {std::move(local), std::move(columns), std::move(padded)};
}

}  // namespace

at::Tensor IdentityLocalIndices(c10::SymInt padded_seq_len, at::Device device) {
  CheckLength(padded_seq_len);
  return Columns(0, padded_seq_len, device);
}

at::Tensor ContiguousLocalIndices(CpRank cp, c10::SymInt padded_seq_len, at::Device device) {
  CheckRank(cp);
  CheckLength(padded_seq_len);
  TORCH_CHECK_VALUE(padded_seq_len % cp.size == 0,
                    "padded_seq_len must be divisible by cp_size, and ", padded_seq_len,
                    " is not by ", cp.size);
  const c10::SymInt slots = padded_seq_len / cp.size;
  return Columns(slots * cp.rank, slots * (cp.rank + 1), device);
}

at::Tensor RoundRobinLocalIndices(CpRank cp, c10::SymInt padded_seq_len, at::Device device) {
  CheckRank(cp);
  CheckLength(padded_seq_len);
  const int64_t chunks = Divisor(2, cp.size, "2 * cp_size");
  TORCH_CHECK_VALUE(padded_seq_len % chunks == 0,
                    "padded_seq_len must be divisible by 2 * cp_size, and ", padded_seq_len,
                    " is not by ", chunks);
  const c10::SymInt chunk = padded_seq_len / chunks;
  const int64_t tail = chunks - 1 - cp.rank;
  return at::cat({Columns(chunk * cp.rank, chunk * (cp.rank + 1), device),
                  Columns(chunk * tail, chunk * (tail + 1), device)});
}

LocalSequence ShardSequenceForCpRoundRobin(CpRank cp, const at::Tensor& tensor,
                                           const SequenceOptions& options) {
  CheckRank(cp);
  return ShardSequence(cp, tensor, options, Divisor(2, cp.size, "2 * cp_size"),
                       RoundRobinLocalIndices);
}

LocalSequence ShardSequenceForCpContiguous(CpRank cp, const at::Tensor& tensor,
                                           const SequenceOptions& options) {
  CheckRank(cp);
  const int64_t multiple = std::max<int64_t>(options.pad_multiple, 2);
  return ShardSequence(cp, tensor, options,
                       Divisor(cp.size, multiple, "cp_size * max(pad_multiple, 2)"),
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
