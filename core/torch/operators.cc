// TORCH_LIBRARY(cpshard): what torch.ops.load_library finds. The schemas, and which function stands
// behind each on a device, for tracers (Meta) and for autograd; nothing is decided here.
//
// Operators without an underscore are compositions: autograd and torch.compile see through them to
// ATen's operators and to the four with one. Lengths are symbolic, and a layout is tensors, so one
// compiled graph serves every batch.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <vector>

#include "core/torch/agreement.h"
#include "core/torch/cuda_streams.h"
#include "core/torch/gather.h"
#include "core/torch/gather_autograd.h"
#include "core/torch/streams.h"
#include "core/torch/token_map.h"
#include "core/torch/token_operators.h"

namespace cpshard {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using OptionalInt = std::optional<c10::SymInt>;
using OptionalScalar = std::optional<at::Scalar>;

std::tuple<Tensor, Tensor> TokenMapOp(const Tensor& runs, at::IntArrayRef sizes, int64_t columns) {
  TokenMap map = MakeTokenMap(runs, sizes, columns);
  return {std::move(map.order), std::move(map.moves)};
}

TokenTensorLayout LayoutOf(const OptionalTensor& positions, at::OptionalSymIntArrayRef row_shape,
                           const OptionalInt& original, const OptionalInt& padded,
                           const OptionalInt& expected) {
  TokenTensorLayout layout{original, padded, {}, positions, expected};
  if (row_shape) layout.input_row_shape = row_shape->vec();
  return layout;
}

Tensor ShardTokenTensorOp(const Tensor& tensor, const Tensor& indices,
                          const OptionalTensor& positions, at::OptionalSymIntArrayRef row_shape,
                          OptionalInt original, OptionalInt padded, int64_t seq_dim,
                          const OptionalScalar& fill, OptionalInt expected) {
  return ShardTokenTensor(
      tensor, indices, LayoutOf(positions, row_shape, original, padded, expected), seq_dim, fill);
}

Tensor GatherTokenTensorOp(const Tensor& tensor, const Tensor& order, const Tensor& moves,
                           c10::SymIntArrayRef sizes, const OptionalTensor& positions,
                           at::OptionalSymIntArrayRef row_shape, OptionalInt original,
                           OptionalInt padded, int64_t seq_dim, bool trim,
                           const OptionalScalar& fill, std::string group, bool slice_gradient,
                           OptionalInt expected) {
  return GatherTokenTensor(tensor, SymTokenMap{order, moves, sizes.vec()},
                           LayoutOf(positions, row_shape, original, padded, expected),
                           TokenGroup(group), {seq_dim, trim, fill, slice_gradient});
}

Tensor GatherTokensOp(const Tensor& local, const Tensor& order, const Tensor& moves,
                      c10::SymIntArrayRef sizes, int64_t dim, std::string group,
                      bool slice_gradient) {
  return GatherByMap(local, SymTokenMap{order, moves, sizes.vec()}, dim, TokenGroup(group),
                     slice_gradient);
}

Tensor GatherTokenTensorByIndicesOp(const Tensor& tensor, const Tensor& local_indices,
                                    int64_t seq_dim, std::string group) {
  return GatherTokenTensorByIndices(TokenGroup(group), tensor, local_indices, seq_dim);
}

Tensor GatherSequenceOp(const Tensor& tensor, std::string group, int64_t dim, bool slice_gradient) {
  return GatherSequence(tensor, TokenGroup(group), dim, slice_gradient);
}

void AgreeOp(at::IntArrayRef numbers, std::string what, std::string group) {
  if (AgreementIsChecked()) Agree(numbers, what, TokenGroup(group));
}

// --- on a device

Tensor GatherTokensDevice(const Tensor& local, const Tensor& order, const Tensor& moves,
                          at::IntArrayRef sizes, int64_t dim, std::string group,
                          bool slice_gradient, std::string verb, bool needs_gradient) {
  return JoinTokens(local, {order, moves, sizes, dim, TokenGroup(group)},
                    GradientOf(needs_gradient, slice_gradient), verb.c_str());
}

Tensor GatherTokensBackwardDevice(const Tensor& grad, const Tensor& order, const Tensor& moves,
                                  at::IntArrayRef sizes, int64_t, int64_t dim, std::string group,
                                  bool slice_gradient) {
  return TokenGradient(grad, {order, moves, sizes, dim, TokenGroup(group)}, slice_gradient);
}

Tensor GatherSequenceDevice(const Tensor& local, int64_t dim, std::string group,
                            bool slice_gradient, bool needs_gradient) {
  return JoinSequence(local, dim, TokenGroup(group), GradientOf(needs_gradient, slice_gradient));
}

Tensor GatherSequenceBackwardDevice(const Tensor& grad, int64_t dim, std::string group,
                                    bool slice_gradient) {
  return SequenceGradient(grad, dim, TokenGroup(group), slice_gradient);
}

// --- for tracers: shapes alone. token_map, moves_of and shard_streams have none, for their shapes
// are values of what they read: they run on the host, once a batch, and a graph gets their results.

Tensor WithLengthMeta(const Tensor& tensor, int64_t dim, c10::SymInt length) {
  std::vector<c10::SymInt> sizes = tensor.sym_sizes().vec();
  sizes[dim] = std::move(length);
  return at::empty_symint(sizes, tensor.options());
}

Tensor GatherTokensMeta(const Tensor& local, const Tensor& order, const Tensor&,
                        c10::SymIntArrayRef, int64_t dim, std::string, bool, std::string, bool) {
  return WithLengthMeta(local, dim, order.sym_numel());
}

Tensor GatherTokensBackwardMeta(const Tensor& grad, const Tensor&, const Tensor&,
                                c10::SymIntArrayRef, c10::SymInt slots, int64_t dim, std::string,
                                bool) {
  return WithLengthMeta(grad, dim, std::move(slots));
}

Tensor GatherSequenceMeta(const Tensor& local, int64_t dim, std::string group, bool, bool) {
  return WithLengthMeta(local, dim, local.sym_size(dim) * TokenGroup(group).size());
}

Tensor GatherSequenceBackwardMeta(const Tensor& grad, int64_t dim, std::string group, bool) {
  return WithLengthMeta(grad, dim, grad.sym_size(dim) / TokenGroup(group).size());
}

}  // namespace

TORCH_LIBRARY(cpshard, library) {
  library.def(
      "token_map(Tensor runs, int[] sizes, SymInt columns) -> (Tensor order, Tensor moves)");
  library.def("moves_of(Tensor order, int[] sizes) -> Tensor");
  library.def(
      "shard_token_tensor(Tensor tensor, Tensor indices, Tensor? positions=None, "
      "SymInt[]? row_shape=None, SymInt? original_seq_len=None, SymInt? padded_seq_len=None, "
      "int seq_dim=1, Scalar? fill=None, SymInt? expected_columns=None) -> Tensor",
      ShardTokenTensorOp);
  library.def(
      "gather_token_tensor(Tensor(a) tensor, Tensor order, Tensor moves, SymInt[] sizes, "
      "Tensor? positions, SymInt[]? row_shape, SymInt? original_seq_len, SymInt? padded_seq_len, "
      "int seq_dim, bool trim, Scalar? fill, str group, bool slice_gradient=False, "
      "SymInt? expected_columns=None) -> Tensor(a)",
      GatherTokenTensorOp);
  library.def(
      "gather_tokens(Tensor(a) local, Tensor order, Tensor moves, SymInt[] sizes, int dim, "
      "str group, bool slice_gradient=False) -> Tensor(a)",
      GatherTokensOp);
  // Not for graphs: it asks the other ranks for their indices and reads them.
  library.def(
      "gather_token_tensor_by_indices(Tensor(a) tensor, Tensor local_indices, int seq_dim, "
      "str group) -> Tensor(a)",
      GatherTokenTensorByIndicesOp);
  library.def(
      "gather_sequence(Tensor(a) tensor, str group, int dim=1, bool slice_gradient=False) "
      "-> Tensor(a)",
      GatherSequenceOp);
  library.def(
      "shard_streams(Tensor[] streams, Tensor runs, int[] seq_dims, Scalar[] fills) -> Tensor[]");
  library.def("cuda_obstacle() -> str", CudaObstacle);
  library.def("agree(int[] numbers, str what, str group) -> ()", AgreeOp);

  library.def(
      "_gather_tokens(Tensor local, Tensor order, Tensor moves, SymInt[] sizes, int dim, "
      "str group, bool slice_gradient, str verb, bool needs_gradient=False) -> Tensor");
  library.def(
      "_gather_tokens_backward(Tensor grad, Tensor order, Tensor moves, SymInt[] sizes, "
      "SymInt slots, int dim, str group, bool slice_gradient) -> Tensor");
  library.def(
      "_gather_sequence(Tensor local, int dim, str group, bool slice_gradient, "
      "bool needs_gradient=False) -> Tensor");
  library.def(
      "_gather_sequence_backward(Tensor grad, int dim, str group, bool slice_gradient) -> Tensor");
}

TORCH_LIBRARY_IMPL(cpshard, CompositeExplicitAutograd, library) {
  library.impl("moves_of", MovesOf);
  library.impl("_gather_tokens", GatherTokensDevice);
  library.impl("_gather_tokens_backward", GatherTokensBackwardDevice);
  library.impl("_gather_sequence", GatherSequenceDevice);
  library.impl("_gather_sequence_backward", GatherSequenceBackwardDevice);
}

TORCH_LIBRARY_IMPL(cpshard, CPU, library) {
  library.impl("token_map", TokenMapOp);
  library.impl("shard_streams", ShardStreams);
}

TORCH_LIBRARY_IMPL(cpshard, CUDA, library) { library.impl("shard_streams", ShardStreams); }

TORCH_LIBRARY_IMPL(cpshard, Meta, library) {
  library.impl("_gather_tokens", GatherTokensMeta);
  library.impl("_gather_tokens_backward", GatherTokensBackwardMeta);
  library.impl("_gather_sequence", GatherSequenceMeta);
  library.impl("_gather_sequence_backward", GatherSequenceBackwardMeta);
}

TORCH_LIBRARY_IMPL(cpshard, Autograd, library) {
  library.impl("_gather_tokens", GatherTokensAutograd);
  library.impl("_gather_tokens_backward", GatherTokensBackwardAutograd);
  library.impl("_gather_sequence", GatherSequenceAutograd);
  library.impl("_gather_sequence_backward", GatherSequenceBackwardAutograd);
}

}  // namespace cpshard
