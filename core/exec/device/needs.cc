#include "core/exec/device/needs.h"

#include <algorithm>
#include <vector>

#include "core/batch/buffer.h"
#include "core/exec/device/piece.h"
#include "core/exec/device/work_table.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr auto kPiece = static_cast<int64_t>(sizeof(Piece));
constexpr auto kRule = static_cast<int64_t>(sizeof(Rule));

bool IsNumber(const Move& move) {
  return move.kind == Move::Kind::kContinue || (move.kind == Move::Kind::kRamp && move.step != 0);
}

// The outer indices that have one row of moves: how many, the first and the last one.
struct Outers {
  int64_t count = 0, first = 0, last = 0;
};

Outers OutersOf(const CutTask& task, int64_t row) {
  const auto num_rows = static_cast<int64_t>(task.moves->size());
  if (num_rows == 1) return {task.outer, 0, task.outer - 1};
  const int64_t first = row * task.row_divisor, cycle = num_rows * task.row_divisor;
  if (task.outer <= first) return {};
  const int64_t cycles = (task.outer - 1 - first) / cycle;  // whole ones before the last index
  const int64_t in_last = std::min(task.outer - first - cycles * cycle, task.row_divisor);
  return {cycles * task.row_divisor + in_last, first, first + cycles * cycle + in_last - 1};
}

// Bytes of the row that the move reads, from its begin.
Interval ReadOf(const CutTask& task, const Move& move) {
  if (move.kind != Move::Kind::kCopy && move.kind != Move::Kind::kContinue) return {};
  const int64_t columns = move.kind == Move::Kind::kCopy ? move.length : 1;
  return {static_cast<uint64_t>(move.from * task.column_bytes),
          static_cast<uint64_t>((move.from + columns) * task.column_bytes)};
}

class CutNeeds {
 public:
  explicit CutNeeds(const CutTask& task) : task_(task), inner_(Inner(task)) {}

  Needs Sum() {
    for (size_t row = 0; row < task_.moves->size(); ++row) {
      const int64_t outers = OutersOf(task_, static_cast<int64_t>(row)).count;
      if (outers > 0) AddRow((*task_.moves)[row], outers);
    }
    return needs_;
  }

 private:
  static int64_t Inner(const CutTask& task) { return task.column_bytes / ItemSize(task.dtype); }

  void AddRow(const Moves& moves, int64_t outers) {
    const int64_t reads = task_.source_stride == 0 ? 1 : outers;
    for (const Move& move : moves) {
      if (move.length == 0) continue;
      const int64_t written = move.length * task_.column_bytes;
      const Interval read = ReadOf(task_, move);
      needs_.strips += outers;
      needs_.table_bytes += outers * kPiece * (1 + written / kLongestPiece);
      if (IsNumber(move) && (inner_ > 1 || move.step > 1)) needs_.table_bytes += kRule;
      needs_.written_bytes += outers * written;
      needs_.read_bytes += reads * static_cast<int64_t>(read.end - read.begin);
    }
  }

  const CutTask& task_;
  const int64_t inner_;
  Needs needs_;
};

Needs NeedsOfTask(const CutTask& task) {
  if (task.outer == 0 || task.column_bytes == 0) return {};
  return CutNeeds(task).Sum();
}

Needs NeedsOfTask(const DeriveTask& task) {
  Needs needs;
  if (task.count == 0) return needs;
  const Rule rule = DeriveRule(task);
  const int64_t source_item = ItemSize(task.source_dtype);
  const int64_t widest = std::max(source_item, ItemSize(task.dest_dtype));
  const int64_t rows = task.is_diagonal ? (task.count - 1) / rule.per_row + 1 : 1;
  const bool by_element = task.is_diagonal && rule.next * source_item > kFarApart;
  needs.strips = by_element ? task.count : rows;
  needs.table_bytes = kRule + kPiece * (needs.strips + task.count / (kLongestPiece / widest));
  needs.written_bytes = task.count * ItemSize(task.dest_dtype);
  needs.read_bytes = task.count * (by_element         ? static_cast<int64_t>(kBufferAlignment)
                                   : task.is_diagonal ? rule.next * source_item
                                                      : source_item);
  return needs;
}

// From the first byte to the last of what all rows name of one operand.
class Hull {
 public:
  void Add(const std::byte* memory, int64_t stride, const Outers& outers, const Interval& in_row) {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    const uint64_t begin = at + outers.first * stride + in_row.begin;
    const uint64_t end = at + outers.last * stride + in_row.end;
    hull_ = is_empty_ ? Interval{begin, end}
                      : Interval{std::min(hull_.begin, begin), std::max(hull_.end, end)};
    is_empty_ = false;
  }

  // Raises `access` to that of the operand.
  absl::Status Ask(const AccessTo& access_to, Access& access) const {
    if (is_empty_ || hull_.begin == hull_.end) return absl::OkStatus();
    CPSHARD_ASSIGN_OR_RETURN(const Access here, access_to(hull_));
    access = std::max(access, here);
    return absl::OkStatus();
  }

 private:
  Interval hull_;
  bool is_empty_ = true;
};

absl::StatusOr<Operands> OperandsOfTask(const CutTask& task, const AccessTo& access_to) {
  Operands operands;
  if (task.outer == 0 || task.column_bytes == 0) return operands;
  Hull source;
  std::vector<Hull> dests(task.dests.size());
  for (size_t row = 0; row < task.moves->size(); ++row) {
    const Outers outers = OutersOf(task, static_cast<int64_t>(row));
    if (outers.count == 0) continue;
    for (const Move& move : (*task.moves)[row]) {
      if (move.length == 0) continue;
      const Interval read = ReadOf(task, move);
      if (read.end > read.begin) source.Add(task.source, task.source_stride, outers, read);
      const auto to = static_cast<uint64_t>(move.to * task.column_bytes);
      dests[move.dest].Add(task.dests[move.dest], task.dest_strides[move.dest], outers,
                           {to, to + move.length * task.column_bytes});
    }
  }
  CPSHARD_RETURN_IF_ERROR(source.Ask(access_to, operands.source));
  for (const Hull& dest : dests) CPSHARD_RETURN_IF_ERROR(dest.Ask(access_to, operands.dest));
  return operands;
}

absl::StatusOr<Operands> OperandsOfTask(const DeriveTask& task, const AccessTo& access_to) {
  Operands operands;
  if (task.count == 0) return operands;
  Strips strips;
  strips.rules = {DeriveRule(task)};
  const Strip all = {reinterpret_cast<uintptr_t>(task.dest),
                     reinterpret_cast<uintptr_t>(task.source), 0, task.count, 0};
  CPSHARD_ASSIGN_OR_RETURN(operands.source, access_to(strips.Reads(all)));
  CPSHARD_ASSIGN_OR_RETURN(operands.dest, access_to(strips.Writes(all)));
  return operands;
}

// A staged element: it lies as the original does modulo 64, and what comes next is aligned.
int64_t Staged(Access access, DType dtype) {
  constexpr auto kAlignment = static_cast<int64_t>(kBufferAlignment);
  return access == Access::kInPlace ? 0 : AlignUp(kAlignment - 1 + ItemSize(dtype));
}

bool HasNumbers(const CutTask& task) {
  return std::any_of(task.moves->begin(), task.moves->end(), [](const Moves& moves) {
    return std::any_of(moves.begin(), moves.end(),
                       [](const Move& move) { return move.length > 0 && IsNumber(move); });
  });
}

}  // namespace

Needs NeedsOf(const Task& task) {
  return std::visit([](const auto& of_kind) { return NeedsOfTask(of_kind); }, task);
}

absl::StatusOr<Operands> OperandsOf(const Task& task, const AccessTo& access_to) {
  return std::visit([&](const auto& of_kind) { return OperandsOfTask(of_kind, access_to); }, task);
}

int64_t LeastMemory(const Task& task, const Operands& operands) {
  const auto* cut = std::get_if<CutTask>(&task);
  const auto* derive = std::get_if<DeriveTask>(&task);
  if (NeedsOf(task).strips == 0) return 0;
  const int64_t rules = cut == nullptr || HasNumbers(*cut) ? 3 : 2;
  return Staged(operands.source, cut != nullptr ? cut->dtype : derive->source_dtype) +
         Staged(operands.dest, cut != nullptr ? cut->dtype : derive->dest_dtype) +
         AlignUp(rules * kRule) + AlignUp(kPiece);
}

}  // namespace cpshard
