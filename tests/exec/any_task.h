// Any tasks over some memory, drawn by chance.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/exec/executor_contract.h"

namespace cpshard {

inline constexpr size_t kSourceBytes = 20000, kDestBytes = 40000;

// Any tasks over `source`, which write `dest`: rows of moves of their own, moves that overwrite
// each other, columns of any width.
class AnyTask {
 public:
  explicit AnyTask(uint32_t seed) : random_(seed) {}

  Task Make(const std::byte* source, std::byte* dest) {
    return Below(3) == 0 ? Task(MakeDerive(source, dest)) : Task(MakeCut(source, dest));
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % n); }

  DeriveTask MakeDerive(const std::byte* source, std::byte* dest) {
    DeriveTask task;
    task.source = source;
    task.source_dtype = Below(2) == 0 ? DType::kI32 : DType::kU8;
    task.dest = dest;
    task.dest_dtype = Below(2) == 0 ? DType::kBool : DType::kI16;
    task.count = Below(2000);
    task.op = Below(2) == 0 ? Op::kNotPositive : Op::kIsZero;
    if (Below(2) == 0) return task;
    task.is_diagonal = true;
    task.diagonal = {1 + Below(3), 1 + Below(9), 1 + Below(9)};
    task.count = Below(9) * std::min(task.diagonal.queries, task.diagonal.keys);
    return task;
  }

  CutTask MakeCut(const std::byte* source, std::byte* dest) {
    CutTask task;
    task.source = source;
    task.dtype = Below(2) == 0 ? DType::kI32 : DType::kI16;
    const int64_t item = ItemSize(task.dtype);
    task.column_bytes = item * (Below(2) == 0 ? 1 : 1 + Below(40));
    task.outer = Below(9);
    task.row_divisor = 1 + Below(3);
    task.source_stride = item * Below(300);
    task.fill.bits = 0x0706050403020100;
    std::vector<Moves> rows(1 + Below(4));
    for (Moves& moves : rows) {
      for (int64_t n = Below(7); n > 0; --n) {
        Move move{static_cast<Move::Kind>(Below(4)), static_cast<uint8_t>(Below(2))};
        move.dest = static_cast<int32_t>(Below(2));
        move.from = Below(40);
        move.to = Below(40);
        move.length = Below(40);
        move.start = Below(500);
        moves.push_back(move);
      }
    }
    task.moves = Share(std::move(rows));
    task.dests = {dest + item * Below(200), dest + item * Below(200)};
    task.dest_strides = {item * Below(400), item * Below(400)};
    return task;
  }

  std::mt19937 random_;
};

}  // namespace cpshard
