#include "core/torch/token_map.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/torch/moves.h"

namespace cpshard {
namespace {

int64_t MaxSize(at::IntArrayRef sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
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
  const std::vector<TokenMove> moves = Tiled(MovesOfRuns(runs, sizes, columns), columns);
  return {OrderOf(moves, MaxSize(sizes), columns), TableOf(moves), sizes.vec()};
}

at::Tensor MovesOf(const at::Tensor& order, at::IntArrayRef sizes) {
  TORCH_CHECK_TYPE(order.scalar_type() == at::kLong && order.dim() == 1, "order is ",
                   order.scalar_type(), " of shape ", order.sizes(), "; it must be int64, 1-D");
  const int64_t width = MaxSize(sizes), ranks = static_cast<int64_t>(sizes.size());
  const at::Tensor host = order.cpu().contiguous();
  const int64_t* from = host.const_data_ptr<int64_t>();
  std::vector<bool> taken(width * ranks);
  std::vector<TokenMove> moves;
  for (int64_t column = 0; column < host.numel(); ++column) {
    const int64_t position = from[column];
    const bool exists =
        position >= 0 && position < width * ranks && position % width < sizes[position / width];
    TORCH_CHECK_VALUE(exists, "column ", column, " comes from position ", position,
                      ", which is no slot of ", ranks, " ranks of ", sizes, " slots");
    TORCH_CHECK_VALUE(!taken[position], "column ", column, " comes from rank ", position / width,
                      ", slot ", position % width, ", as one before it does");
    taken[position] = true;
    const int64_t rank = position / width, slot = position % width;
    if (!moves.empty() && moves.back().rank == rank &&
        moves.back().slot + moves.back().length == slot) {
      ++moves.back().length;
    } else {
      moves.push_back({rank, slot, column, 1});
    }
  }
  return TableOf(moves);
}

void CheckMoves(const at::Tensor& moves, at::IntArrayRef sizes, int64_t columns) {
  CheckTable(moves, 4, "moves");
  const at::Tensor rows = moves.contiguous();
  int64_t total = 0;
  for (const TokenMove& move : MovesIn(rows)) {
    const bool inside = move.rank >= 0 && move.rank < static_cast<int64_t>(sizes.size()) &&
                        move.slot >= 0 && move.length >= 0 && move.column >= 0 &&
                        move.length <= columns - move.column &&
                        move.length <= sizes[move.rank] - move.slot;
    TORCH_CHECK_VALUE(inside, "the move {rank ", move.rank, ", slot ", move.slot, ", column ",
                      move.column, ", length ", move.length, "} leaves ", columns, " columns of ",
                      sizes.size(), " ranks of ", sizes, " slots");
    total += move.length;
  }
  TORCH_CHECK_VALUE(total == columns, "the moves are ", total, " columns long together, order ",
                    columns);
}

}  // namespace cpshard
