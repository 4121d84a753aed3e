#include "core/exec/device/split.h"

#include <algorithm>
#include <utility>

#include "core/exec/device/strips.h"

namespace cpshard {
namespace {

// How many of `total`, which is at least 2, each part has: fewer than all; of many a multiple of
// kMeet.
int64_t Share(int64_t total, int64_t parts) {
  const int64_t share = std::max<int64_t>(total / parts, 1);
  return share > kMeet ? share / kMeet * kMeet : share;
}

// `start` + step * count, as the executors count: modulo 2^64.
int64_t Counted(int64_t start, int64_t step, int64_t count) {
  return static_cast<int64_t>(static_cast<uint64_t>(start) +
                              static_cast<uint64_t>(step) * static_cast<uint64_t>(count));
}

std::vector<Task> SplitDerive(const DeriveTask& task, int64_t parts) {
  std::vector<Task> tasks;
  if (task.count < 2) return tasks;
  const DeriveTask::Diagonal& diagonal = task.diagonal;
  const int64_t per_row = task.is_diagonal ? std::min(diagonal.queries, diagonal.keys) : task.count;
  const bool by_row = task.count > per_row;
  const int64_t total = by_row ? (task.count + per_row - 1) / per_row : task.count;
  const int64_t unit = by_row ? per_row : 1;  // elements
  // Elements of the source from one unit to the next.
  const int64_t step = by_row             ? diagonal.heads * diagonal.queries * diagonal.keys
                       : task.is_diagonal ? diagonal.keys + 1
                                          : 1;
  const int64_t share = Share(total, parts);
  for (int64_t first = 0; first < total; first += share) {
    DeriveTask part = task;
    part.source += first * step * ItemSize(task.source_dtype);
    part.dest += first * unit * ItemSize(task.dest_dtype);
    part.count = std::min(share * unit, task.count - first * unit);
    tasks.push_back(std::move(part));
  }
  return tasks;
}

// Parts meet where the next row of moves begins, or all their outer indices have the same one;
// where all rows come more than once each part has all of them, as they are.
std::vector<Task> SplitOuter(const CutTask& task, int64_t parts) {
  const auto num_rows = static_cast<int64_t>(task.moves->size());
  const int64_t cycle = num_rows * task.row_divisor;
  const int64_t unit = num_rows == 1                   ? 1
                       : task.outer > cycle            ? cycle
                       : task.outer > task.row_divisor ? task.row_divisor
                                                       : 1;
  const int64_t share = std::max<int64_t>(task.outer / parts / unit, 1) * unit;
  std::vector<Task> tasks;
  for (int64_t first = 0; first < task.outer; first += share) {
    CutTask part = task;
    part.outer = std::min(share, task.outer - first);
    if (part.source != nullptr) part.source += first * task.source_stride;
    for (size_t k = 0; k < part.dests.size(); ++k) part.dests[k] += first * task.dest_strides[k];
    if (num_rows > 1 && unit < cycle) {
      const int64_t row = first / task.row_divisor;
      const int64_t last_row = (first + part.outer - 1) / task.row_divisor;
      std::vector<Moves> rows;
      for (int64_t i = 0; i < std::min(last_row - row + 1, num_rows); ++i) {
        rows.push_back((*task.moves)[(row + i) % num_rows]);
      }
      part.moves = std::make_shared<const std::vector<Moves>>(std::move(rows));
    }
    tasks.push_back(std::move(part));
  }
  return tasks;
}

CutTask WithMoves(const CutTask& task, Moves moves) {
  CutTask part = task;
  part.moves = std::make_shared<const std::vector<Moves>>(1, std::move(moves));
  return part;
}

std::vector<Task> SplitMoves(const CutTask& task, const Moves& moves, int64_t parts) {
  const auto total = static_cast<int64_t>(moves.size());
  const int64_t share = std::max<int64_t>(total / parts, 1);
  std::vector<Task> tasks;
  for (int64_t first = 0; first < total; first += share) {
    const auto begin = moves.begin() + first;
    tasks.push_back(WithMoves(task, Moves(begin, begin + std::min(share, total - first))));
  }
  return tasks;
}

std::vector<Task> SplitColumns(const CutTask& task, const Move& move, int64_t parts) {
  const int64_t share = Share(move.length, parts);
  std::vector<Task> tasks;
  for (int64_t first = 0; first < move.length; first += share) {
    Move part = move;
    part.to += first;
    part.length = std::min(share, move.length - first);
    if (move.kind == Move::Kind::kCopy) part.from += first;
    if (move.kind == Move::Kind::kContinue) part.start = Counted(move.start, 1, first);
    if (move.kind == Move::Kind::kRamp) part.start = Counted(move.start, move.step, first);
    tasks.push_back(WithMoves(task, {part}));
  }
  return tasks;
}

// One column, an outer index for every element of it.
CutTask ByElement(const CutTask& task, Move move) {
  const int64_t item = ItemSize(task.dtype);
  CutTask elements = task;
  if (elements.source != nullptr) elements.source += move.from * task.column_bytes;
  elements.dests = {task.dests[move.dest] + move.to * task.column_bytes};
  elements.outer = task.column_bytes / item;
  elements.column_bytes = elements.source_stride = item;
  elements.dest_strides = {item};
  move.dest = 0;
  move.from = move.to = 0;
  elements.row_divisor = 1;
  return WithMoves(elements, {move});
}

// A copy of bytes is one of as many columns of one byte.
CutTask ByByte(const CutTask& task, Move move) {
  CutTask bytes = task;
  bytes.dtype = DType::kU8;
  bytes.column_bytes = 1;
  move.from *= task.column_bytes;
  move.to *= task.column_bytes;
  move.length *= task.column_bytes;
  return WithMoves(bytes, {move});
}

std::vector<Task> SplitCut(const CutTask& task, int64_t parts) {
  if (task.outer > 1) return SplitOuter(task, parts);
  if (task.outer == 0) return {};
  Moves moves = task.moves->front();
  std::erase_if(moves, [](const Move& move) { return move.length == 0; });
  if (moves.size() > 1) return SplitMoves(task, moves, parts);
  if (moves.empty()) return {};
  const Move& move = moves.front();
  if (move.length > 1) return SplitColumns(task, move, parts);
  if (move.kind == Move::Kind::kCopy && task.column_bytes > ItemSize(task.dtype)) {
    const CutTask bytes = ByByte(task, move);
    return SplitColumns(bytes, bytes.moves->front().front(), parts);
  }
  const CutTask elements = ByElement(task, move);
  return elements.outer > 1 ? SplitOuter(elements, parts) : std::vector<Task>();
}

}  // namespace

std::vector<Task> SplitTask(const Task& task, int64_t parts) {
  parts = std::max<int64_t>(parts, 2);
  if (const auto* derive = std::get_if<DeriveTask>(&task)) return SplitDerive(*derive, parts);
  return SplitCut(std::get<CutTask>(task), parts);
}

}  // namespace cpshard
