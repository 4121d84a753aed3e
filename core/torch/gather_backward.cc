#include <algorithm>

#include "core/torch/gather.h"
#include "core/torch/gather_parts.h"
#include "core/torch/shapes.h"

namespace cpshard {
namespace {

at::Tensor SumOverRanks(const at::Tensor& sent, at::IntArrayRef sizes,
                        const std::vector<int64_t>& splits, const TokenGroup& group,
                        const char* verb) {
  at::Tensor received = at::empty(OfAllRanks(group.size(), sizes), sent.options());
  group.AllToAll(received.view(-1), sent.view(-1), splits, verb);
  // The reference's very call, and so its order of additions. It adds to 0, and never gives -0.0.
  return received.sum(0);
}

constexpr char kBackward[] = "gather_tokens (backward)";

at::Tensor SumByMoves(const at::Tensor& grad, const TokenGather& gather,
                      const ShardGeometry& geometry) {
  const at::Tensor full = grad.contiguous(), moves = gather.moves.contiguous();
  const int64_t slots = AllSlots(gather);
  const auto regular = AsRegularPieces(MovesIn(moves), gather.sizes, geometry.columns);
  const bool in_order = regular && regular->pieces == 1 && geometry.outer == 1 &&
                        std::is_sorted(regular->first.begin(), regular->first.end());
  at::Tensor sent = full;
  if (!in_order) {
    const auto sizes = WithLength(grad.sizes(), gather.dim, slots);
    sent = slots == geometry.columns ? at::empty(sizes, grad.options())
                                     : at::zeros(sizes, grad.options());
    SplitIntoShards(MovesIn(moves), geometry, full.const_data_ptr(), sent.mutable_data_ptr());
  }
  const int64_t own = gather.sizes[gather.group.rank()];
  std::vector<int64_t> splits;
  if (own * gather.group.size() != slots || own != Width(gather)) {
    for (const int64_t size : gather.sizes) splits.push_back(sent.numel() / slots * size);
  }
  return SumOverRanks(sent, WithLength(grad.sizes(), gather.dim, own), splits, gather.group,
                      kBackward);
}

at::Tensor SumByOrder(const at::Tensor& grad, const TokenGather& gather) {
  const int64_t width = Width(gather), ranks = gather.group.size(), dim = gather.dim;
  const auto shape = WithLength(grad.sizes(), dim, width);
  at::Tensor sent = at::zeros(OfAllRanks(ranks, shape), grad.options());
  sent.movedim(0, dim).index_put_(RankAndSlot(gather, width), grad);
  at::Tensor sum;
  if (gather.group.Reduces(grad.device())) {
    sum = at::empty(shape, grad.options());
    gather.group.ReduceScatter(sum.view(-1), sent.view(-1), kBackward);
    sum.add_(0);  // the reference's index_select turns -0.0 into 0.0 on the way back
  } else {
    sum = SumOverRanks(sent, shape, {}, gather.group, kBackward);
  }
  return sum.narrow(dim, 0, gather.sizes[gather.group.rank()]).contiguous();
}

at::Tensor SliceByMoves(const at::Tensor& grad, const TokenGather& gather, ShardGeometry geometry) {
  const at::Tensor full = grad.contiguous(), moves = gather.moves.contiguous();
  const int64_t rank = gather.group.rank();
  std::vector<TokenMove> own;
  for (const TokenMove& move : MovesIn(moves)) {
    if (move.rank == rank) own.push_back({0, move.slot, move.column, move.length});
  }
  geometry.slots = {gather.sizes[rank]};
  at::Tensor local =
      at::zeros(WithLength(grad.sizes(), gather.dim, gather.sizes[rank]), grad.options());
  SplitIntoShards(own, geometry, full.const_data_ptr(), local.mutable_data_ptr());
  return local;
}

at::Tensor SliceByOrder(const at::Tensor& grad, const TokenGather& gather) {
  const int64_t rank = gather.group.rank(), width = Width(gather), own = gather.sizes[rank];
  // Columns of other ranks all go to one slot more, which is cut off: no length depends on values.
  const at::Tensor slot = gather.order - rank * width;
  const at::Tensor index = slot.masked_fill(slot.lt(0).logical_or_(slot.ge(own)), own);
  at::Tensor local = at::zeros(WithLength(grad.sizes(), gather.dim, own + 1), grad.options());
  local.index_copy_(gather.dim, index, grad);
  return local.narrow(gather.dim, 0, own).contiguous();
}

}  // namespace

at::Tensor TokenGradient(const at::Tensor& grad, const TokenGather& gather, bool slice_gradient) {
  const int64_t own = OwnSlots(gather);
  CheckTensor(grad, gather, gather.order.numel(), "the gradient");
  if (grad.is_complex()) {
    return at::view_as_complex(
        TokenGradient(at::view_as_real(grad.resolve_conj()), gather, slice_gradient));
  }
  const at::Tensor plain = grad.resolve_neg();
  const ShardGeometry geometry = GeometryOf(plain, gather);
  const bool by_moves = ByMoves(plain, gather, geometry);
  if (IsEmpty(geometry)) {
    return at::zeros(WithLength(grad.sizes(), gather.dim, own), grad.options());
  }
  if (slice_gradient) {
    return by_moves ? SliceByMoves(plain, gather, geometry) : SliceByOrder(plain, gather);
  }
  return by_moves && !gather.group.Reduces(plain.device()) ? SumByMoves(plain, gather, geometry)
                                                           : SumByOrder(plain, gather);
}

at::Tensor SequenceGradient(const at::Tensor& grad, int64_t dim, const TokenGroup& group,
                            bool slice_gradient) {
  CheckStrided(grad, "the gradient");
  constexpr char kVerb[] = "gather_sequence (backward)";
  const int64_t ranks = group.size(), length = grad.size(dim) / ranks;
  if (slice_gradient) return grad.narrow(dim, group.rank() * length, length).clone();
  if (grad.is_complex()) {
    return at::view_as_complex(
        SequenceGradient(at::view_as_real(grad.resolve_conj()), dim, group, false));
  }
  const auto shape = WithLength(grad.sizes(), dim, length);
  if (grad.numel() == 0) return at::zeros(shape, grad.options());
  std::vector<int64_t> split = grad.sizes().vec();
  split[dim] = ranks;
  split.insert(split.begin() + dim + 1, length);
  const at::Tensor sent = grad.resolve_neg().contiguous().view(split).movedim(dim, 0).contiguous();
  if (!group.Reduces(grad.device())) return SumOverRanks(sent, shape, {}, group, kVerb);
  at::Tensor sum = at::empty(shape, grad.options());
  group.ReduceScatter(sum.view(-1), sent.view(-1), kVerb);
  return sum;
}

}  // namespace cpshard
