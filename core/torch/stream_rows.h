// Rows of a stream where they lie. A tensor that is expanded, or cut out of a larger one, has its
// rows at a stride, or at several; a task reads them there, so nothing is written out for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace cpshard {

// Rows on end in the shard, and apart alike in the stream. A row is one index of all axes before
// the sequence axis, in their order.
struct RowBlock {
  int64_t first = 0;   // row
  int64_t count = 0;   // of rows
  int64_t offset = 0;  // of the first row, elements from the stream's first one
  int64_t stride = 0;  // elements from one row to the next; 0 = one row for all
  friend bool operator==(const RowBlock&, const RowBlock&) = default;
};

// The rows of `stream` before axis `dim`, as few blocks as their strides allow, in order; none of a
// tensor without rows. Precondition: 0 <= dim < the number of axes.
std::vector<RowBlock> RowBlocksOf(const at::Tensor& stream, int64_t dim);

// `stream`, or one with the same values and shape, of which a row is elements on end. A copy where
// rows are strided inside (a transposed tensor) or lie in more than 1,024 blocks; what is
// expanded is copied once.
at::Tensor WithRowsOnEnd(const at::Tensor& stream, int64_t dim);

}  // namespace cpshard
