#include "core/torch/token_verbs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "core/plan/token_verbs.h"
#include "core/torch/agreement.h"
#include "core/torch/gather_operators.h"
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

// 1-D int64, where the tensor is.
at::Tensor OnDevice(const at::Tensor& indices, const at::Tensor& tensor) {
  return indices.to(tensor.device(), at::kLong).reshape(-1);
}

// [B, S] -> [B, padded]. Dropped tokens go to a column more, in front, which is cut off: no length
// depends on values.
at::Tensor Repositioned(const at::Tensor& tensor, const at::Tensor& positions,
                        const c10::SymInt& padded, const at::Scalar& fill) {
  const at::Tensor columns = positions.to(tensor.device(), at::kLong).clamp_min(-1) + 1;
  return at::full_symint({tensor.sym_size(0), padded + 1}, fill, tensor.options())
      .scatter(1, columns, tensor)
      .narrow_symint(1, 1, padded);
}

at::Tensor Trimmed(const at::Tensor& full, const GatherSteps& steps,
                   const TokenTensorLayout& layout, const std::optional<at::Scalar>& fill) {
  using Trim = GatherSteps::Trim;
  switch (steps.trim) {
    case Trim::kNone:
      return full;
    case Trim::kPositions: {
      const at::Tensor positions =
          layout.input_token_stream_positions->to(full.device(), at::kLong);
      return full.gather(1, positions.clamp_min(0)).masked_fill(positions.lt(0), *fill);
    }
    case Trim::kRowShape:
      return full.reshape_symint(steps.shape);
    case Trim::kOriginal:
      return full.narrow_symint(steps.axis, 0, steps.shape[steps.axis]);
  }
  return full;
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
  return SelectPadded(full, steps.axis, OnDevice(indices, full), *fill);
}

at::Tensor ShardTokenTensorByIndices(const at::Tensor& tensor, const at::Tensor& local_indices,
                                     int64_t seq_dim) {
  return tensor.index_select(seq_dim, OnDevice(local_indices, tensor)).contiguous();
}

// What operators and C++ callers share; sizes may be symbolic.
at::Tensor GatherTokenTensor(const at::Tensor& tensor, const SymTokenMap& map,
                             const TokenTensorLayout& layout, const std::string& group,
                             const GatherTokenOptions& options) {
  GatherTokenArgs<c10::SymInt> args{
      options.seq_dim,          options.trim,
      options.fill.has_value(), static_cast<int64_t>(map.sizes.size()),
      !group.empty(),           {}};
  const bool alone = group.empty() || map.sizes.size() == 1;
  if (!alone && !layout.expected_columns) {  // captured indices are as many on every rank
    args.all_slots = c10::SymInt(0);
    for (const c10::SymInt& size : map.sizes) *args.all_slots += size;
  }
  const GatherSteps steps = OrThrow(DecideGatherToken<c10::SymInt>(
      NumbersOf(layout), ColumnsOf(layout), Span(tensor.sym_sizes()), args));
  const at::Tensor full = alone ? tensor
                                : CallGatherTokens(tensor, map.order, map.moves, map.sizes,
                                                   steps.axis, group, options.slice_gradient,
                                                   options.trim ? "gather_token_tensor with trim"
                                                                : "gather_token_tensor");
  return Trimmed(full, steps, layout, options.fill);
}

at::Tensor GatherTokenTensor(const at::Tensor& tensor, const TokenMap& map,
                             const TokenTensorLayout& layout, const Group& group,
                             const GatherTokenOptions& options) {
  SymTokenMap symbolic{map.order.to(tensor.device()), map.moves, {}};
  symbolic.sizes.assign(map.sizes.begin(), map.sizes.end());
  return GatherTokenTensor(tensor, symbolic, layout, group.name(), options);
}

at::Tensor GatherByMap(const at::Tensor& local, const SymTokenMap& map, int64_t dim,
                       const std::string& group, bool slice_gradient) {
  const int64_t axis = at::maybe_wrap_dim(dim, local.dim(), /*wrap_scalar=*/false);
  if (group.empty() || map.sizes.size() == 1) {
    return local.narrow_symint(axis, 0, map.order.sym_numel());
  }
  return CallGatherTokens(local, map.order, map.moves, map.sizes, axis, group, slice_gradient,
                          "gather_tokens");
}

at::Tensor GatherTokenTensorByIndices(const Group& group, const at::Tensor& tensor,
                                      const at::Tensor& local_indices, int64_t seq_dim) {
  if (group.size() == 1) return tensor;
  const at::Tensor own = OnDevice(local_indices, tensor).contiguous();
  at::Tensor all = at::empty({group.size() * own.numel()}, own.options());
  group.AllGather(all, own, "gather_token_tensor_by_indices");
  SymTokenMap map{all.argsort(/*stable=*/true), {}, {}};
  map.moves = MovesOf(map.order, std::vector<int64_t>(group.size(), own.numel()));
  map.sizes.assign(group.size(), c10::SymInt(own.numel()));
  return GatherByMap(tensor, map, seq_dim, group.name(), /*slice_gradient=*/false);
}

at::Tensor GatherSequence(const at::Tensor& tensor, const Group& group, int64_t dim,
                          bool slice_gradient) {
  const int64_t axis = at::maybe_wrap_dim(dim, tensor.dim(), /*wrap_scalar=*/false);
  if (group.size() == 1) return tensor;
  return CallGatherSequence(tensor, axis, group.name(), slice_gradient);
}

}  // namespace cpshard
