#include "core/torch/stream_rows.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

namespace cpshard {
namespace {

constexpr int64_t kMostBlocks = 1024;  // a task each: beyond, a copy is less work

struct Axis {
  int64_t size = 1, stride = 0;
};
using Axes = c10::SmallVector<Axis, 5>;

// The axes before `dim`, the innermost first; one after the other where they are apart alike.
Axes FoldedAxes(const at::Tensor& stream, int64_t dim) {
  Axes axes;
  for (int64_t axis = dim - 1; axis >= 0; --axis) {
    const Axis next{stream.size(axis), stream.stride(axis)};
    if (next.size == 1) continue;
    if (!axes.empty() && next.stride == axes.back().stride * axes.back().size) {
      axes.back().size *= next.size;
    } else {
      axes.push_back(next);
    }
  }
  if (axes.empty()) axes.push_back({});
  return axes;
}

int64_t BlocksOf(const Axes& axes) {
  int64_t blocks = 1;
  for (size_t i = 1; i < axes.size(); ++i) blocks *= axes[i].size;
  return blocks;
}

bool RowsAreOnEnd(const at::Tensor& stream, int64_t dim) {
  int64_t elements = 1;
  for (int64_t axis = stream.dim() - 1; axis >= dim; --axis) {
    if (stream.size(axis) != 1 && stream.stride(axis) != elements) return false;
    elements *= stream.size(axis);
  }
  return true;
}

// A copy without gaps in a row. Rows that are one row stay one.
at::Tensor Copied(const at::Tensor& stream, int64_t dim) {
  at::Tensor once = stream;
  for (int64_t axis = 0; axis < dim; ++axis) {
    if (stream.stride(axis) == 0 && stream.size(axis) > 1) once = once.narrow(axis, 0, 1);
  }
  return once.contiguous().expand(stream.sizes());
}

}  // namespace

std::vector<RowBlock> RowBlocksOf(const at::Tensor& stream, int64_t dim) {
  if (c10::multiply_integers(stream.sizes().slice(0, dim)) == 0) return {};
  const Axes axes = FoldedAxes(stream, dim);
  std::vector<RowBlock> blocks(BlocksOf(axes), {0, axes[0].size, 0, axes[0].stride});
  for (size_t block = 0; block < blocks.size(); ++block) {
    blocks[block].first = static_cast<int64_t>(block) * axes[0].size;
    int64_t index = static_cast<int64_t>(block);
    for (size_t i = 1; i < axes.size(); ++i) {
      blocks[block].offset += index % axes[i].size * axes[i].stride;
      index /= axes[i].size;
    }
  }
  return blocks;
}

at::Tensor WithRowsOnEnd(const at::Tensor& stream, int64_t dim) {
  if (stream.is_contiguous()) return stream;
  const bool reads = RowsAreOnEnd(stream, dim) && BlocksOf(FoldedAxes(stream, dim)) <= kMostBlocks;
  return reads ? stream : Copied(stream, dim);
}

}  // namespace cpshard
