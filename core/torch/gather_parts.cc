#include "core/torch/gather_parts.h"

#include <algorithm>
#include <numeric>

#include "core/torch/shapes.h"
#include "core/torch/token_map.h"

namespace cpshard {
namespace {

// From this many bytes a move on, copying move by move beats gathering column by column.
constexpr int64_t kLongMoveBytes = 32;

}  // namespace

int64_t Width(const TokenGather& gather) {
  return *std::max_element(gather.sizes.begin(), gather.sizes.end());
}

int64_t AllSlots(const TokenGather& gather) {
  return std::accumulate(gather.sizes.begin(), gather.sizes.end(), int64_t{0});
}

int64_t OwnSlots(const TokenGather& gather) {
  const at::IntArrayRef sizes = gather.sizes;
  TORCH_CHECK_VALUE(static_cast<int64_t>(sizes.size()) == gather.group.size(), "the map is for ",
                    sizes.size(), " ranks, group '", gather.group.name(), "' has ",
                    gather.group.size());
  for (const int64_t size : sizes) TORCH_CHECK_VALUE(size >= 0, "sizes are ", sizes);
  return sizes[gather.group.rank()];
}

Gradient GradientOf(bool needed, bool slice) {
  return slice ? Gradient::kSlice : needed ? Gradient::kSum : Gradient::kNone;
}

void CheckStrided(const at::Tensor& tensor, const char* what) {
  const bool strided = tensor.layout() == at::kStrided && !tensor.is_nested();
  TORCH_CHECK_TYPE(strided && !tensor.is_quantized(), what, " is ",
                   tensor.is_quantized() ? "quantized" : "not strided",
                   "; gather a dense tensor (dequantize() or to_dense() makes one)");
}

void CheckTensor(const at::Tensor& tensor, const TokenGather& gather, int64_t length,
                 const char* what) {
  CheckStrided(tensor, what);
  const at::IntArrayRef sizes = gather.sizes;
  TORCH_CHECK_VALUE(tensor.size(gather.dim) == length, what, " has shape ", tensor.sizes(),
                    ": on axis ", gather.dim, " the layout has ", length, " for rank ",
                    gather.group.rank(), " of ", sizes.size(), " ranks with ", sizes,
                    " slots; it does not match the batch that was sharded");
  TORCH_CHECK_VALUE(gather.order.dim() == 1 && gather.order.scalar_type() == at::kLong, "order is ",
                    gather.order.scalar_type(), " ", gather.order.sizes(),
                    "; it must be int64, 1-D");
  TORCH_CHECK_VALUE(gather.order.device() == tensor.device(), "order is on ", gather.order.device(),
                    ", the tensor on ", tensor.device());
  if (tensor.is_cpu()) CheckMap(gather.order, gather.moves, sizes);
}

ShardGeometry GeometryOf(const at::Tensor& tensor, const TokenGather& gather) {
  const at::IntArrayRef sizes = tensor.sizes();
  return {ProductOf(sizes.slice(0, gather.dim)), gather.order.numel(),
          ProductOf(sizes.slice(gather.dim + 1)) * tensor.element_size(), gather.sizes.vec()};
}

bool IsEmpty(const ShardGeometry& geometry) {
  return geometry.outer == 0 || geometry.columns == 0 || geometry.inner_bytes == 0;
}

bool ByMoves(const at::Tensor& tensor, const TokenGather& gather, const ShardGeometry& geometry) {
  if (!tensor.is_cpu()) return false;
  return geometry.columns * geometry.inner_bytes >= kLongMoveBytes * gather.moves.size(0);
}

c10::List<std::optional<at::Tensor>> RankAndSlot(const TokenGather& gather, int64_t width) {
  c10::List<std::optional<at::Tensor>> indices;
  for (int64_t i = 0; i < gather.dim; ++i) indices.push_back(std::nullopt);
  indices.push_back(gather.order.div(width, "floor"));
  indices.push_back(gather.order.remainder(width));
  return indices;
}

}  // namespace cpshard
