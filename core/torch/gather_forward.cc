#include "core/torch/agreement.h"
#include "core/torch/gather.h"
#include "core/torch/gather_parts.h"
#include "core/torch/shapes.h"

namespace cpshard {
namespace {

// `local`, its axis filled up with zeros to the longest of all ranks.
at::Tensor Padded(const at::Tensor& local, int64_t dim, int64_t width) {
  if (local.size(dim) == width) return local.contiguous();
  at::Tensor padded = at::zeros(WithLength(local.sizes(), dim, width), local.options());
  padded.narrow(dim, 0, local.size(dim)).copy_(local);
  return padded;
}

// Contiguous `tensor` with its axis as pieces x length, from column `first` on at distance `step`.
at::Tensor PiecesOf(const at::Tensor& tensor, int64_t dim, const RegularPieces& regular,
                    int64_t first, int64_t step) {
  const int64_t outer = ProductOf(tensor.sizes().slice(0, dim));
  const int64_t inner = ProductOf(tensor.sizes().slice(dim + 1));
  return tensor.as_strided({outer, regular.pieces, regular.length, inner},
                           {tensor.size(dim) * inner, step * inner, inner, 1}, first * inner);
}

void GatherIntoViews(const at::Tensor& local, const at::Tensor& full, int64_t dim,
                     const RegularPieces& regular, const TokenGroup& group, const char* verb) {
  std::vector<at::Tensor> views;
  for (size_t rank = 0; rank < regular.first.size(); ++rank) {
    views.push_back(PiecesOf(full, dim, regular, regular.first[rank], regular.step[rank]));
  }
  group.AllGather(views, PiecesOf(local, dim, regular, 0, regular.length), verb);
}

// [ranks, ..., width, ...]
at::Tensor AllShards(const at::Tensor& local, const TokenGroup& group, const char* verb) {
  at::Tensor all = at::empty(OfAllRanks(group.size(), local.sizes()), local.options());
  group.AllGather(all, local, verb);
  return all;
}

at::Tensor GatherByMoves(const at::Tensor& local, const TokenGather& gather, ShardGeometry geometry,
                         const char* verb) {
  at::Tensor full =
      at::empty(WithLength(local.sizes(), gather.dim, geometry.columns), local.options());
  const auto moves = gather.moves.contiguous();
  const auto regular = AsRegularPieces(MovesIn(moves), gather.sizes, geometry.columns);
  if (regular && gather.group.GathersIntoViews(local.device())) {
    GatherIntoViews(local.contiguous(), full, gather.dim, *regular, gather.group, verb);
    return full;
  }
  const int64_t width = Width(gather);
  const at::Tensor all = AllShards(Padded(local, gather.dim, width), gather.group, verb);
  geometry.slots.assign(gather.sizes.size(), width);
  JoinShards(MovesIn(moves), geometry, all.const_data_ptr(), full.mutable_data_ptr());
  return full;
}

at::Tensor GatherByOrder(const at::Tensor& local, const TokenGather& gather,
                         const ShardGeometry& geometry, const char* verb) {
  const int64_t width = Width(gather), ranks = gather.group.size(), dim = gather.dim;
  const at::Tensor all = AllShards(Padded(local, dim, width), gather.group, verb);
  if (geometry.outer == 1) {
    return all.view(WithLength(local.sizes(), dim, ranks * width)).index_select(dim, gather.order);
  }
  return all.movedim(0, dim).index(RankAndSlot(gather, width)).contiguous();
}

const char* Words(Gradient gradient) {
  switch (gradient) {
    case Gradient::kNone:
      return ", no gradient";
    case Gradient::kSum:
      return ", gradient summed";
    case Gradient::kSlice:
      return ", gradient sliced";
  }
  return "";
}

void CheckAgreement(const at::Tensor& local, int64_t dim, at::IntArrayRef sizes,
                    const at::Tensor& order, Gradient gradient, const TokenGroup& group,
                    const char* verb) {
  if (!AgreementIsChecked()) return;
  // Ranks of uneven layouts differ in the length of the axis, and in nothing else.
  std::vector<int64_t> shape = WithLength(local.sizes(), dim, -1);
  std::string what = c10::str(verb, " of ", local.scalar_type(), " ", at::IntArrayRef(shape),
                              " (-1 is axis ", dim, ") with ", sizes, " slots");
  if (order.defined()) {
    what += c10::str(" in ", order.numel(), " columns, order #", Fingerprint(order));
  }
  Agree({}, what + Words(gradient), group);
}

at::Tensor Joined(const at::Tensor& local, const TokenGather& gather, const char* verb) {
  if (local.is_complex()) {
    return at::view_as_complex(Joined(at::view_as_real(local.resolve_conj()), gather, verb));
  }
  const at::Tensor plain = AsIntegers(local.resolve_neg());
  const ShardGeometry geometry = GeometryOf(plain, gather);
  if (IsEmpty(geometry)) {
    return at::empty(WithLength(local.sizes(), gather.dim, geometry.columns), local.options());
  }
  const at::Tensor full = ByMoves(plain, gather, geometry)
                              ? GatherByMoves(plain, gather, geometry, verb)
                              : GatherByOrder(plain, gather, geometry, verb);
  return full.view(local.scalar_type());
}

at::Tensor JoinedSequence(const at::Tensor& local, int64_t dim, const TokenGroup& group,
                          const char* verb) {
  if (local.is_complex()) {
    return at::view_as_complex(
        JoinedSequence(at::view_as_real(local.resolve_conj()), dim, group, verb));
  }
  const int64_t ranks = group.size(), length = local.size(dim);
  const at::Tensor plain = local.resolve_neg().contiguous();
  at::Tensor full = at::empty(WithLength(local.sizes(), dim, ranks * length), local.options());
  if (full.numel() == 0) return full;
  if (ProductOf(local.sizes().slice(0, dim)) == 1) {
    group.AllGather(full, plain, verb);
  } else if (group.GathersIntoViews(local.device())) {
    RegularPieces shards{1, length, {}, std::vector<int64_t>(ranks, 0)};
    for (int64_t rank = 0; rank < ranks; ++rank) shards.first.push_back(rank * length);
    GatherIntoViews(plain, full, dim, shards, group, verb);
  } else {
    full.copy_(AllShards(plain, group, verb).movedim(0, dim).reshape(full.sizes()));
  }
  return full;
}

}  // namespace

at::Tensor JoinTokens(const at::Tensor& local, const TokenGather& gather, Gradient gradient,
                      const char* verb) {
  OrTellRefusal(verb, gather.group,
                [&] { CheckTensor(local, gather, OwnSlots(gather), "the tensor"); });
  CheckAgreement(local, gather.dim, gather.sizes, gather.order, gradient, gather.group, verb);
  return Joined(local, gather, verb);
}

at::Tensor JoinSequence(const at::Tensor& local, int64_t dim, const TokenGroup& group,
                        Gradient gradient) {
  constexpr char kVerb[] = "gather_sequence";
  OrTellRefusal(kVerb, group, [&] { CheckStrided(local, "the tensor"); });
  const std::vector<int64_t> sizes(group.size(), local.size(dim));
  CheckAgreement(local, dim, sizes, {}, gradient, group, kVerb);
  return JoinedSequence(local, dim, group, kVerb);
}

}  // namespace cpshard
