// TokenMap: where each column of a gathered tensor comes from. Made once per batch, on the host,
// from the runs that every rank holds of all ranks (decision D10); a gather then needs neither the
// other ranks' indices nor a sort.
//
//   rank 0 holds columns 0 1 6 7, rank 1 holds 2 3 4 5 (round robin, cp 2, L = 4 slots each)
//   column   0 1 2 3 4 5 6 7
//   order    0 1 4 5 6 7 2 3      = rank * L + slot
//   moves    {rank 0, slot 0, column 0, length 2}, {1, 0, 2, 4}, {0, 2, 6, 2}
//
// Both say the same: `order` for a device and for short runs, `moves` for a CPU and long ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace cpshard {

struct TokenMap {
  at::Tensor order;  // int64 [columns]: rank * max(sizes) + slot
  at::Tensor moves;  // int64 [m, 4]: rank, slot, column, length, by column; rows of length
                     // 0 make m 2 at least, so that a compiled graph keeps m symbolic
  std::vector<int64_t> sizes;  // [ranks]: slots of each rank; they may differ
};

// From `runs`, int64 [n, 3] on the CPU: rank, first padded column, length, in the order of the
// slots within a rank, ranks ascending. `columns` is the length of the gathered tensor: that of the
// padded sequence, or less, which trims its tail. ValueError, naming the column: the runs do not
// cover [0, columns) just once, or a rank's runs do not make up its size; TypeError: not int64.
TokenMap MakeTokenMap(const at::Tensor& runs, at::IntArrayRef sizes, int64_t columns);

// The moves of an order that was made elsewhere, by sorting foreign indices for example. int64
// [columns], on any device; the result is on the CPU.
// ValueError, naming the column: a slot that does not exist, or one that two columns have.
at::Tensor MovesOf(const at::Tensor& order, at::IntArrayRef sizes);

// ValueError unless `moves`, int64 [m, 4] on the CPU, are what memory may be moved by: they go
// through the columns of `order` (int64 1-D, on the CPU) one after the other, take slots that exist
// and none twice, and say the same as `order`. One pass over order.
void CheckMap(const at::Tensor& order, const at::Tensor& moves, at::IntArrayRef sizes);

}  // namespace cpshard
