#include "core/torch/token_verbs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "core/plan/token_verbs.h"
#include "core/torch/agreement.h"
#include "core/torch/gather_operators.h"
#include "core/torch/gather_parts.h"
#include "core/torch/index_maps.h"
#include "core/torch/token_operators.h"

namespace cpshard {
namespace {

using SymLayout = TokenLayout<c10::SymInt>;
using SymColumns = TokenColumns<c10::SymInt>;
using GatherSteps = GatherTokenSteps<c10::SymInt>;

std::span<const c10::SymInt> Span(c10::SymIntArrayRef sizes) {
  return {sizes.data(), sizes.size()};
}

SymLayout NumbersOf(const TokenTensorLayout& layout) {
  SymLayout numbers{layout.original_seq_len, layout.padded_seq_len, layout.input_row_shape, {}};
  if (layout.input_token_stream_positions) {
    numbers.positions_shape = layout.input_token_stream_positions->sym_sizes().vec();
  }
  return numbers;
}

// The map itself was checked when its indices were made.
SymColumns ColumnsOf(const TokenTensorLayout& layout) { return {layout.expected_columns, 1}; }

// The steps, or the exception of the refusal.
template <typename Steps>
Steps OrThrow(OrRefusal<Steps> decided) {
  if (const auto* refusal = std::get_if<Refusal>(&decided)) {
    TORCH_CHECK_NOT_IMPLEMENTED(refusal->kind != Refusal::Kind::kNoLayout, refusal->text);
    TORCH_CHECK_INDEX(refusal->kind != Refusal::Kind::kNoAxis, refusal->text);
    TORCH_CHECK_VALUE(false, refusal->text);
  }
  return std::get<Steps>(std::move(decided));
}

bool IsTraced(const at::Tensor& tensor) {
  return tensor.is_meta() || tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

// check(), telling the other ranks where it throws and agreement is checked: then they wait for
// this one.
template <typename Check>
auto OrTell(const at::Tensor& tensor, const TokenGroup& group, const char* verb, Check check) {
  if (group.size() == 1 || IsTraced(tensor)) return check();
  return OrTellRefusal(verb, group, check);
}

void CheckIntegers(const at::Tensor& integers, const char* what) {
  TORCH_CHECK_TYPE(at::isIntegralType(integers.scalar_type(), /*includeBool=*/false), what, " are ",
                   integers.scalar_type(), "; they must be integers");
}

// 1-D int64, where the tensor is.
at::Tensor OnDevice(const at::Tensor& indices, const at::Tensor& tensor) {
  CheckIntegers(indices, "indices");
  return indices.to(tensor.device(), at::kLong).reshape(-1);
}

// On the CPU alone: a device would have to be waited for.
bool IsReadable(const at::Tensor& tensor) {
  return tensor.is_cpu() && !IsTraced(tensor) && tensor.numel() > 0;
}

void CheckIndices(const at::Tensor& indices, const c10::SymInt& columns) {
  if (!IsReadable(indices)) return;
  const auto [least, most] = indices.aminmax();
  const auto low = least.item<int64_t>(), high = most.item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < columns, "index ", low < 0 ? low : high,
                    " is no column of the ", columns, " that the layout pads to");
}

void CheckPositions(const at::Tensor& positions, const c10::SymInt& columns) {
  CheckIntegers(positions, "positions");
  if (!IsReadable(positions) || positions.max().item<int64_t>() < columns) return;
  const at::Tensor beyond = positions.ge(columns.expect_int()).nonzero()[0];
  const auto row = beyond[0].item<int64_t>(), column = beyond[1].item<int64_t>();
  TORCH_CHECK_VALUE(false, "position ", positions[row][column].item<int64_t>(), " of row ", row,
                    ", token ", column, ", is no column of padded_seq_len=", columns,
                    "; positions are 0 ... padded_seq_len - 1, or -1 for a dropped token");
}

// Some dtypes can be moved and not computed with, and torch scatters none of them: integers of
// their size stand for them, where that takes no gradient away.
at::Tensor Movable(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  const bool known = !c10::isFloat8Type(dtype) && !c10::isBarebonesUnsignedType(dtype);
  return known || (tensor.requires_grad() && at::GradMode::is_enabled()) ? tensor
                                                                         : AsIntegers(tensor);
}

at::Tensor BackTo(at::ScalarType dtype, const at::Tensor& tensor) {
  return tensor.scalar_type() == dtype ? tensor : tensor.view(dtype);
}

// [B, S] -> [B, padded]. Dropped tokens go to a column more, in front, which is cut off: no length
// depends on values.
at::Tensor Repositioned(const at::Tensor& tensor, const at::Tensor& positions,
                        const c10::SymInt& padded, const at::Scalar& fill) {
  CheckPositions(positions, padded);
  const at::Tensor columns = positions.to(tensor.device(), at::kLong).clamp_min(-1) + 1;
  const at::Tensor from = Movable(tensor);
  const at::Tensor empty =
      at::full_symint({tensor.sym_size(0), padded + 1}, fill, tensor.options());
  const at::Tensor placed = BackTo(from.scalar_type(), empty).scatter(1, columns, from);
  return BackTo(tensor.scalar_type(), placed).narrow_symint(1, 1, padded);
}

// [B, padded] -> [B, S].
at::Tensor AtPositions(const at::Tensor& full, const at::Tensor& positions,
                       const at::Scalar& fill) {
  const at::Tensor columns = positions.to(full.device(), at::kLong);
  const at::Tensor from = Movable(full);
  const at::Tensor found = from.gather(1, columns.clamp_min(0));
  if (from.scalar_type() == full.scalar_type()) return found.masked_fill(columns.lt(0), fill);
  const at::Tensor value = AsIntegers(at::full({}, fill, full.options()));
  return BackTo(full.scalar_type(), found.masked_fill(columns.lt(0), value));
}

at::Tensor Trimmed(const at::Tensor& full, const GatherSteps& steps,
                   const TokenTensorLayout& layout, const std::optional<at::Scalar>& fill) {
  using Trim = GatherSteps::Trim;
  switch (steps.trim) {
    case Trim::kNone:
      return full;
    case Trim::kPositions:
      return AtPositions(full, *layout.input_token_stream_positions, *fill);
    case Trim::kRowShape:
      return full.reshape_symint(steps.shape);
    case Trim::kOriginal:
      return full.narrow_symint(steps.axis, 0, steps.shape[steps.axis]);
  }
  return full;
}

void CheckRanks(const SymTokenMap& map, const TokenGroup& group) {
  if (group.name().empty()) return;
  TORCH_CHECK_VALUE(static_cast<int64_t>(map.sizes.size()) == group.size(), "the map is for ",
                    map.sizes.size(), " ranks, group '", group.name(), "' has ", group.size());
}

GatherSteps StepsOf(const at::Tensor& tensor, const SymTokenMap& map,
                    const TokenTensorLayout& layout, const TokenGroup& group,
                    const GatherTokenOptions& options) {
  CheckStrided(tensor, "the tensor");
  CheckRanks(map, group);
  GatherTokenArgs<c10::SymInt> args{
      options.seq_dim,          options.trim,
      options.fill.has_value(), static_cast<int64_t>(map.sizes.size()),
      !group.name().empty(),    {}};
  const bool alone = group.size() == 1;
  c10::SymInt slots = 0;
  for (const c10::SymInt& size : map.sizes) slots += size;
  // Captured indices are checked as if they were as many on every rank.
  if (!alone && !layout.expected_columns) args.all_slots = slots;
  GatherSteps steps = OrThrow(DecideGatherToken<c10::SymInt>(NumbersOf(layout), ColumnsOf(layout),
                                                             Span(tensor.sym_sizes()), args));
  const c10::SymInt columns = options.trim ? steps.columns : slots;
  TORCH_CHECK_VALUE(alone || map.order.sym_numel() == columns, "order has ", map.order.sym_numel(),
                    " columns, the ranks' shards ", columns,
                    ": it must be the order of all of them");
  if (steps.trim == GatherSteps::Trim::kPositions) {
    CheckPositions(*layout.input_token_stream_positions, steps.columns);
  }
  return steps;
}

// A gather that has nobody to ask: `local` is the full tensor already, or more of it.
at::Tensor FirstColumns(const at::Tensor& local, const SymTokenMap& map, int64_t axis) {
  const c10::SymInt columns = map.order.sym_numel(), slots = local.sym_size(axis);
  const bool one = map.sizes.size() == 1;
  TORCH_CHECK_VALUE(one ? slots == map.sizes[0] : columns <= slots, "a tensor of shape ",
                    local.sym_sizes(), " has ", slots, " slots on axis ", axis, ", the map has ",
                    one ? map.sizes[0] : columns, "; it does not match the batch that was sharded");
  if (one && IsReadable(map.order)) {
    TORCH_CHECK_VALUE(at::equal(map.order, at::arange(map.order.numel(), at::kLong)),
                      "without a group a map of one rank must have the columns in their order");
  }
  return local.narrow_symint(axis, 0, columns);
}

// Whether the one rank of a map has its slots in another order than the columns. The moves say so
// on the host, wherever the order is; those of no length say nothing.
bool Reorders(const SymTokenMap& map) {
  if (map.sizes.size() != 1 || !IsReadable(map.moves)) return false;
  const at::Tensor slots = map.moves.select(1, 1), columns = map.moves.select(1, 2);
  return slots.ne(columns).logical_and(map.moves.select(1, 3).gt(0)).any().item<bool>();
}

int64_t AxisOf(const at::Tensor& tensor, int64_t dim) {
  CheckStrided(tensor, "the tensor");
  return at::maybe_wrap_dim(dim, tensor.dim(), /*wrap_scalar=*/false);
}

}  // namespace

at::Tensor ShardTokenTensor(const at::Tensor& tensor, const at::Tensor& indices,
                            const TokenTensorLayout& layout, int64_t seq_dim,
                            const std::optional<at::Scalar>& fill) {
  const auto steps = OrThrow(DecideShardToken<c10::SymInt>(
      NumbersOf(layout), ColumnsOf(layout), Span(tensor.sym_sizes()), {seq_dim, fill.has_value()}));
  at::Tensor full = tensor;
  if (steps.reposition) {
    full = Repositioned(tensor, *layout.input_token_stream_positions, steps.columns, *fill);
  } else if (steps.merged_axes > 0) {
    const auto sizes = tensor.sym_sizes();
    std::vector<c10::SymInt> merged = {steps.columns - steps.pad};
    merged.insert(merged.end(), sizes.begin() + steps.merged_axes, sizes.end());
    full = tensor.reshape_symint(merged);
  }
  if (steps.pad == 0) return ShardTokenTensorByIndices(full, indices, steps.axis);
  const at::Tensor columns = OnDevice(indices, full);
  CheckIndices(columns, steps.columns);
  return SelectPadded(full, steps.axis, columns, *fill);
}

at::Tensor ShardTokenTensorByIndices(const at::Tensor& tensor, const at::Tensor& local_indices,
                                     int64_t seq_dim) {
  return tensor.index_select(seq_dim, OnDevice(local_indices, tensor)).contiguous();
}

// What operators and C++ callers share; sizes may be symbolic.
at::Tensor GatherTokenTensor(const at::Tensor& tensor, const SymTokenMap& map,
                             const TokenTensorLayout& layout, const TokenGroup& group,
                             const GatherTokenOptions& options) {
  const char* verb = options.trim ? "gather_token_tensor with trim" : "gather_token_tensor";
  const GatherSteps steps =
      OrTell(tensor, group, verb, [&] { return StepsOf(tensor, map, layout, group, options); });
  at::Tensor full = tensor;
  if (group.size() > 1) {
    full = CallGatherTokens(tensor, map.order, map.moves, map.sizes, steps.axis, group.name(),
                            options.slice_gradient, verb, /*needs_gradient=*/false);
  } else if (Reorders(map)) {
    const c10::SymInt slots = tensor.sym_size(steps.axis);
    TORCH_CHECK_VALUE(slots == map.sizes[0], "a tensor of shape ", tensor.sym_sizes(), " has ",
                      slots, " slots on axis ", steps.axis, ", the map has ", map.sizes[0],
                      "; it does not match the batch that was sharded");
    full = tensor.index_select(steps.axis, map.order);
  }
  return Trimmed(full, steps, layout, options.fill);
}

at::Tensor GatherTokenTensor(const at::Tensor& tensor, const TokenMap& map,
                             const TokenTensorLayout& layout, const TokenGroup& group,
                             const GatherTokenOptions& options) {
  SymTokenMap symbolic{map.order.to(tensor.device()), map.moves, {}};
  symbolic.sizes.assign(map.sizes.begin(), map.sizes.end());
  return GatherTokenTensor(tensor, symbolic, layout, group, options);
}

at::Tensor GatherByMap(const at::Tensor& local, const SymTokenMap& map, int64_t dim,
                       const TokenGroup& group, bool slice_gradient) {
  constexpr char kVerb[] = "gather_tokens";
  const int64_t axis = OrTell(local, group, kVerb, [&] {
    CheckRanks(map, group);
    return AxisOf(local, dim);
  });
  if (group.size() == 1) return FirstColumns(local, map, axis);
  return CallGatherTokens(local, map.order, map.moves, map.sizes, axis, group.name(),
                          slice_gradient, kVerb, /*needs_gradient=*/false);
}

at::Tensor GatherTokenTensorByIndices(const TokenGroup& group, const at::Tensor& tensor,
                                      const at::Tensor& local_indices, int64_t seq_dim) {
  constexpr char kVerb[] = "gather_token_tensor_by_indices";
  if (group.size() == 1) return tensor;
  const at::Tensor own = OrTell(tensor, group, kVerb, [&] {
    const int64_t slots = tensor.size(AxisOf(tensor, seq_dim));
    TORCH_CHECK_VALUE(slots == local_indices.numel(), "a tensor of shape ", tensor.sizes(), " has ",
                      slots, " slots on axis ", seq_dim, ", there are ", local_indices.numel(),
                      " indices; there must be one a slot");
    return OnDevice(local_indices, tensor).contiguous();
  });
  if (AgreementIsChecked()) {
    Agree({own.numel()}, c10::str(kVerb, " of ", tensor.scalar_type(), " by so many indices"),
          group);
  }
  at::Tensor all = at::empty({group.size() * own.numel()}, own.options());
  group.AllGather(all, own, kVerb);
  SymTokenMap map{all.argsort(/*stable=*/true), {}, {}};
  map.moves = MovesOf(map.order, std::vector<int64_t>(group.size(), own.numel()));
  map.sizes.assign(group.size(), c10::SymInt(own.numel()));
  return GatherByMap(tensor, map, seq_dim, group, /*slice_gradient=*/false);
}

at::Tensor GatherSequence(const at::Tensor& tensor, const TokenGroup& group, int64_t dim,
                          bool slice_gradient) {
  const int64_t axis =
      OrTell(tensor, group, "gather_sequence", [&] { return AxisOf(tensor, dim); });
  if (group.size() == 1) return tensor;
  return CallGatherSequence(tensor, axis, group.name(), slice_gradient, /*needs_gradient=*/false);
}

}  // namespace cpshard
