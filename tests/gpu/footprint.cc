#include "tests/gpu/footprint.h"

#include <algorithm>

namespace cpshard {
namespace {

TaskFootprint Of(const CutTask& task) {
  TaskFootprint footprint;
  footprint.dests.resize(task.dests.size());
  for (int64_t outer = 0; outer < task.outer; ++outer) {
    const size_t row = (outer / task.row_divisor) % task.moves->size();
    for (const Move& move : (*task.moves)[row]) {
      if (move.length * task.column_bytes == 0) continue;
      const int64_t to = outer * task.dest_strides[move.dest] + move.to * task.column_bytes;
      footprint.dests[move.dest].Include(to, to + move.length * task.column_bytes);
      const int64_t from = outer * task.source_stride + move.from * task.column_bytes;
      const int64_t columns = move.kind == Move::Kind::kCopy       ? move.length
                              : move.kind == Move::Kind::kContinue ? 1
                                                                   : 0;
      footprint.source.Include(from, from + columns * task.column_bytes);
    }
  }
  return footprint;
}

TaskFootprint Of(const DeriveTask& task) {
  TaskFootprint footprint;
  footprint.dests.resize(1);
  if (task.count == 0) return footprint;
  footprint.dests[0].Include(0, task.count * ItemSize(task.dest_dtype));
  int64_t last = task.count - 1;  // element of the source
  if (task.is_diagonal) {
    const auto& [heads, queries, keys] = task.diagonal;
    const int64_t per_row = std::min(queries, keys);
    last = last / per_row * (heads * queries * keys) + last % per_row * (keys + 1);
  }
  footprint.source.Include(0, (last + 1) * ItemSize(task.source_dtype));
  return footprint;
}

}  // namespace

void Hull::Include(int64_t from, int64_t to) {
  if (from == to) return;
  *this = empty() ? Hull{from, to} : Hull{std::min(begin, from), std::max(end, to)};
}

TaskFootprint FootprintOfTask(const Task& task) {
  return std::visit([](const auto& of_kind) { return Of(of_kind); }, task);
}

}  // namespace cpshard
