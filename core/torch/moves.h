// Moving whole columns between the shards of all ranks, one after the other in a buffer, and the
// full tensor, by the moves of a TokenMap. CPU memory, any element type.
//
// Shards lie rank after rank, each [outer, slots of the rank, inner]; the full tensor is
// [outer, columns, inner].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cpshard {

// A row of TokenMap::moves: slots [slot, slot + length) of a rank are the columns from `column` on.
struct TokenMove {
  int64_t rank, slot, column, length;
};
static_assert(sizeof(TokenMove) == 4 * sizeof(int64_t));

// The rows of contiguous int64 [m, 4] on the CPU, seen as moves.
inline c10::ArrayRef<TokenMove> MovesIn(const at::Tensor& moves) {
  return {reinterpret_cast<const TokenMove*>(moves.const_data_ptr()),
          static_cast<size_t>(moves.size(0))};
}

struct ShardGeometry {
  int64_t outer = 1;           // product of the sizes before the sequence axis
  int64_t columns = 0;         // of the full tensor
  int64_t inner_bytes = 1;     // of a column
  std::vector<int64_t> slots;  // [ranks], as they lie in the buffer
};

// full <- shards, and shards <- full. Every byte of a move is written; slots and columns that no
// move names are left. On several threads where that pays.
void JoinShards(c10::ArrayRef<TokenMove> moves, const ShardGeometry& geometry, const void* shards,
                void* full);
void SplitIntoShards(c10::ArrayRef<TokenMove> moves, const ShardGeometry& geometry,
                     const void* full, void* shards);

// A map whose ranks all hold `pieces` equal pieces at equal distances: rank r's slots are
// pieces x length, piece k at column first[r] + k * step[r]. So the contiguous map (1 piece), round
// robin (2), stripes. Its shards are then plain views of the full tensor.
struct RegularPieces {
  int64_t pieces = 1, length = 0;
  std::vector<int64_t> first, step;  // [ranks]
};

// nullopt: it is no such map, or one of so many pieces that views do not pay.
std::optional<RegularPieces> AsRegularPieces(c10::ArrayRef<TokenMove> moves, at::IntArrayRef sizes,
                                             int64_t columns);

}  // namespace cpshard
