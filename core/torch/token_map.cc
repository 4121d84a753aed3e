#include "core/torch/token_map.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "core/plan/token_bits.h"
#include "core/torch/moves.h"

namespace cpshard {
namespace {

// Slots of the longest rank. ValueError: a size below 0, or positions beyond int64.
int64_t MaxSize(at::IntArrayRef sizes) {
  int64_t width = 0, positions = 0;
  for (const int64_t size : sizes) {
    TORCH_CHECK_VALUE(size >= 0, "sizes are ", sizes, "; they must be 0 at least");
    width = std::max(width, size);
  }
  const auto ranks = static_cast<int64_t>(sizes.size());
  TORCH_CHECK_VALUE(!__builtin_mul_overflow(width, ranks, &positions), "sizes are ", sizes,
                    ": positions of ", ranks, " ranks of ", width, " slots are beyond int64");
  return width;
}

void CheckTable(const at::Tensor& table, int64_t width, const char* name) {
  TORCH_CHECK_TYPE(table.scalar_type() == at::kLong && table.device().is_cpu(), name, " is ",
                   table.scalar_type(), " on ", table.device(), "; it must be int64 on the CPU");
  TORCH_CHECK_VALUE(table.dim() == 2 && table.size(1) == width, name, " has shape ", table.sizes(),
                    "; it must be [n, ", width, "]");
}

// Rank by rank, slot by slot; of ranks and slots that exist.
std::vector<TokenMove> MovesOfRuns(const at::Tensor& runs, at::IntArrayRef sizes, int64_t columns) {
  const at::Tensor rows = runs.contiguous();
  const int64_t* row = rows.const_data_ptr<int64_t>();
  std::vector<TokenMove> moves;
  std::vector<int64_t> slots(sizes.size(), 0);
  for (int64_t i = 0; i < rows.size(0); ++i, row += 3) {
    const int64_t rank = row[0], column = row[1], length = row[2];
    TORCH_CHECK_VALUE(rank >= 0 && rank < static_cast<int64_t>(sizes.size()) && column >= 0 &&
                          length >= 0 && length <= sizes[rank] - slots[rank],
                      "run ", i, " {rank ", rank, ", column ", column, ", length ", length,
                      "} is none of ", sizes.size(), " ranks of ", sizes, " slots");
    const int64_t kept = std::min(length, std::max<int64_t>(columns - column, 0));
    if (kept > 0) moves.push_back({rank, slots[rank], column, kept});
    slots[rank] += length;
  }
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    TORCH_CHECK_VALUE(slots[rank] == sizes[rank], "the runs of rank ", rank, " are ", slots[rank],
                      " columns long together, its size is ", sizes[rank]);
  }
  return moves;
}

// In the order of the columns, pieces that go on joined. ValueError unless they tile [0, columns).
std::vector<TokenMove> Tiled(std::vector<TokenMove> moves, int64_t columns) {
  std::sort(moves.begin(), moves.end(),
            [](const TokenMove& a, const TokenMove& b) { return a.column < b.column; });
  std::vector<TokenMove> tiled;
  int64_t next = 0;
  for (const TokenMove& move : moves) {
    TORCH_CHECK_VALUE(move.column <= next, "no rank holds column ", next, " of ", columns);
    TORCH_CHECK_VALUE(move.column == next, "column ", move.column, " of ", columns,
                      " is held twice, the second time by rank ", move.rank, " in slot ",
                      move.slot);
    next += move.length;
    if (!tiled.empty() && tiled.back().rank == move.rank &&
        tiled.back().slot + tiled.back().length == move.slot) {
      tiled.back().length += move.length;
    } else {
      tiled.push_back(move);
    }
  }
  TORCH_CHECK_VALUE(next == columns, "no rank holds column ", next, " of ", columns);
  return tiled;
}

// ValueError, naming the second column: two moves have a slot in common.
void CheckSlots(std::vector<TokenMove> moves) {
  std::sort(moves.begin(), moves.end(), [](const TokenMove& a, const TokenMove& b) {
    return std::tie(a.rank, a.slot, a.column) < std::tie(b.rank, b.slot, b.column);
  });
  for (size_t i = 1; i < moves.size(); ++i) {
    const TokenMove &a = moves[i - 1], &b = moves[i];
    if (a.rank != b.rank || a.slot + a.length <= b.slot) continue;
    const int64_t column = std::max(a.column + b.slot - a.slot, b.column);
    TORCH_CHECK_VALUE(false, "column ", column, " comes from rank ", b.rank, ", slot ", b.slot,
                      ", as one before it does");
  }
}

// The slots that moves take, of all ranks one after the other.
class TakenSlots {
 public:
  explicit TakenSlots(at::IntArrayRef sizes) : bits_(Sum(sizes)) {
    int64_t offset = 0;
    for (const int64_t size : sizes) offsets_.push_back(std::exchange(offset, offset + size));
  }

  void Add(const TokenMove& move) {
    const int64_t begin = offsets_[move.rank] + move.slot;
    bits_.Set(begin, begin + move.length);
  }

  int64_t Count() {
    bits_.CountUp();
    return bits_.Count(0, bits_.size());
  }

 private:
  static int64_t Sum(at::IntArrayRef sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  }

  TokenBits bits_;
  std::vector<int64_t> offsets_;
};

// ValueError unless the move goes on at column `next` and stays inside the map.
void CheckMove(const TokenMove& move, at::IntArrayRef sizes, int64_t columns, int64_t next) {
  const bool inside = move.rank >= 0 && move.rank < static_cast<int64_t>(sizes.size()) &&
                      move.slot >= 0 && move.length >= 0 && move.column >= 0 &&
                      move.length <= columns - move.column &&
                      move.length <= sizes[move.rank] - move.slot;
  TORCH_CHECK_VALUE(inside, "the move {rank ", move.rank, ", slot ", move.slot, ", column ",
                    move.column, ", length ", move.length, "} leaves ", columns, " columns of ",
                    sizes.size(), " ranks of ", sizes, " slots");
  TORCH_CHECK_VALUE(move.column == next, "the move {rank ", move.rank, ", slot ", move.slot,
                    ", column ", move.column, ", length ", move.length, "} stands where column ",
                    next, " is due: moves go through the columns one after the other");
}

// Whether the values are first, first + 1, ... Four at a time, so that no one waits for another: a
// gather of one element a column spends a tenth of its time here.
bool CountsUp(const int64_t* values, int64_t length, int64_t first) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  int64_t i = 0;
  for (; i + 4 <= length; i += 4) {
    a |= values[i] ^ (first + i);
    b |= values[i + 1] ^ (first + i + 1);
    c |= values[i + 2] ^ (first + i + 2);
    d |= values[i + 3] ^ (first + i + 3);
  }
  for (; i < length; ++i) a |= values[i] ^ (first + i);
  return (a | b | c | d) == 0;
}

// ValueError, naming the first column of the move that order has from elsewhere.
void RefuseOrder(const int64_t* order, const TokenMove& move, int64_t first) {
  int64_t i = 0;
  while (order[move.column + i] == first + i) ++i;
  TORCH_CHECK_VALUE(false, "column ", move.column + i, " comes from position ",
                    order[move.column + i], " by order, from position ", first + i,
                    " by moves (rank ", move.rank, ", slot ", move.slot + i,
                    "); both must be of one map");
}

at::Tensor TableOf(const std::vector<TokenMove>& moves) {
  const auto rows = static_cast<int64_t>(moves.size());
  at::Tensor table = at::zeros({std::max<int64_t>(rows, 2), 4}, at::kLong);
  int64_t* row = table.mutable_data_ptr<int64_t>();
  for (const TokenMove& move : moves) {
    *row++ = move.rank;
    *row++ = move.slot;
    *row++ = move.column;
    *row++ = move.length;
  }
  return table;
}

at::Tensor OrderOf(const std::vector<TokenMove>& moves, int64_t width, int64_t columns) {
  at::Tensor order = at::empty({columns}, at::kLong);
  int64_t* column = order.mutable_data_ptr<int64_t>();
  for (const TokenMove& move : moves) {
    for (int64_t i = 0; i < move.length; ++i) *column++ = move.rank * width + move.slot + i;
  }
  return order;
}

}  // namespace

TokenMap MakeTokenMap(const at::Tensor& runs, at::IntArrayRef sizes, int64_t columns) {
  CheckTable(runs, 3, "runs");
  TORCH_CHECK_VALUE(columns >= 0, "columns is ", columns, "; it must be 0 at least");
  const int64_t width = MaxSize(sizes);
  const std::vector<TokenMove> moves = Tiled(MovesOfRuns(runs, sizes, columns), columns);
  return {OrderOf(moves, width, columns), TableOf(moves), sizes.vec()};
}

at::Tensor MovesOf(const at::Tensor& order, at::IntArrayRef sizes) {
  TORCH_CHECK_TYPE(order.scalar_type() == at::kLong && order.dim() == 1, "order is ",
                   order.scalar_type(), " of shape ", order.sizes(), "; it must be int64, 1-D");
  const int64_t width = MaxSize(sizes), ranks = static_cast<int64_t>(sizes.size());
  const at::Tensor host = order.cpu().contiguous();
  const int64_t* from = host.const_data_ptr<int64_t>();
  std::vector<TokenMove> moves;
  for (int64_t column = 0; column < host.numel(); ++column) {
    const int64_t position = from[column];
    const bool exists =
        position >= 0 && position < width * ranks && position % width < sizes[position / width];
    TORCH_CHECK_VALUE(exists, "column ", column, " comes from position ", position,
                      ", which is no slot of ", ranks, " ranks of ", sizes, " slots");
    const int64_t rank = position / width, slot = position % width;
    if (!moves.empty() && moves.back().rank == rank &&
        moves.back().slot + moves.back().length == slot) {
      ++moves.back().length;
    } else {
      moves.push_back({rank, slot, column, 1});
    }
  }
  CheckSlots(moves);
  return TableOf(moves);
}

void CheckMap(const at::Tensor& order, const at::Tensor& moves, at::IntArrayRef sizes) {
  CheckTable(moves, 4, "moves");
  const int64_t width = MaxSize(sizes), columns = order.numel();
  const at::Tensor positions = order.contiguous(), rows = moves.contiguous();
  const int64_t* const from = positions.const_data_ptr<int64_t>();
  TakenSlots taken(sizes);
  int64_t next = 0;
  for (const TokenMove& move : MovesIn(rows)) {
    if (move.length == 0) continue;
    CheckMove(move, sizes, columns, next);
    const int64_t first = move.rank * width + move.slot;
    if (!CountsUp(from + next, move.length, first)) RefuseOrder(from, move, first);
    taken.Add(move);
    next += move.length;
  }
  TORCH_CHECK_VALUE(next == columns, "the moves are ", next, " columns long together, order ",
                    columns);
  TORCH_CHECK_VALUE(taken.Count() == columns, "the moves take ", columns - taken.Count(),
                    " slots twice; token_map and moves_of make maps that do not");
}

}  // namespace cpshard
