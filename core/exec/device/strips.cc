#include "core/exec/device/strips.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/exec/device/bodies.h"
#include "core/exec/device/launch_order.h"
#include "core/exec/device/overlaps.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr uint32_t kCopyRule = 0, kFillRule = 1;

uint64_t AddressOf(const std::byte* memory) { return reinterpret_cast<uintptr_t>(memory); }

// The element again and again, in 8 bytes.
uint64_t Repeated(uint64_t bits, int64_t item) {
  for (int64_t have = item; have < 8; have *= 2) {
    bits &= (uint64_t{1} << (8 * have)) - 1;
    bits |= bits << (8 * have);
  }
  return bits;
}

class Expansion {
 public:
  explicit Expansion(const Reaches& reaches) : reaches_(reaches) {
    result_.rules.resize(2);
    result_.rules[kFillRule].kind = PieceKind::kFill;
  }

  absl::Status Add(const DeriveTask& task) {
    if (task.count == 0) return absl::OkStatus();
    Rule rule;
    rule.kind = PieceKind::kDerive;
    rule.dtype = task.dest_dtype;
    rule.source_dtype = task.source_dtype;
    rule.cast = task.cast.value_or(task.source_dtype);
    rule.op = task.op;
    rule.operand = task.operand;
    rule.is_diagonal = task.is_diagonal;
    if (task.is_diagonal) {
      rule.per_row = std::min(task.diagonal.queries, task.diagonal.keys);
      rule.row = task.diagonal.heads * task.diagonal.queries * task.diagonal.keys;
      rule.next = task.diagonal.keys + 1;
    }
    Strip all{AddressOf(task.dest), AddressOf(task.source), 0, task.count, AddRule(rule)};
    CPSHARD_ASSIGN_OR_RETURN(const bool source, reaches_(task.source));
    CPSHARD_ASSIGN_OR_RETURN(const bool dest, reaches_(task.dest));
    all.stage_source = !source;
    all.stage_dest = !dest;
    const Interval written = result_.Writes(all);
    Place(Rows(all), order_.Place(result_.Reads(all), {&written, 1}));
    return absl::OkStatus();
  }

  absl::Status Add(const CutTask& task) {
    if (task.outer == 0 || task.column_bytes == 0) return absl::OkStatus();
    const Footprint footprint = FootprintOf(task);
    std::vector<Strip> strips;
    Interval reads;
    CPSHARD_RETURN_IF_ERROR(Expand(task, footprint, strips, reads));
    if (strips.empty()) return absl::OkStatus();
    if (footprint.overlaps) CPSHARD_RETURN_IF_ERROR(KeepTheLater(result_, strips));
    Place(std::move(strips), order_.Place(reads, footprint.dests));
    return absl::OkStatus();
  }

  Strips Take() { return std::move(result_); }

 private:
  uint32_t AddRule(const Rule& rule) {
    result_.rules.push_back(rule);
    return static_cast<uint32_t>(result_.rules.size() - 1);
  }

  // A diagonal reads a small part of each row: a strip a row, so that no more need be staged.
  std::vector<Strip> Rows(const Strip& all) const {
    const Rule& rule = result_.rules[all.rule];
    if (!rule.is_diagonal) return {all};
    std::vector<Strip> rows;
    for (int64_t first = 0; first < all.size; first += rule.per_row) {
      Strip& row = rows.emplace_back(all);
      row.first = first;
      row.size = std::min(rule.per_row, all.size - first);
      row.dest += first * ItemSize(rule.dtype);
    }
    return rows;
  }

  void Place(std::vector<Strip> strips, size_t launch) {
    if (result_.launches.size() <= launch) result_.launches.resize(launch + 1);
    std::vector<Strip>& all = result_.launches[launch];
    if (all.empty()) {
      all = std::move(strips);
    } else {
      all.insert(all.end(), strips.begin(), strips.end());
    }
  }

  absl::Status Expand(const CutTask& task, const Footprint& footprint, std::vector<Strip>& strips,
                      Interval& reads);
  Strip Model(const CutTask& task, const Move& move);
  uint32_t NumberRule(const CutTask& task, const Move& move);

  const Reaches& reaches_;
  Strips result_;
  LaunchOrder order_;
  std::map<std::pair<PieceKind, DType>, uint32_t> by_one_;  // rules that count up from 0, inner 1
};

uint32_t Expansion::NumberRule(const CutTask& task, const Move& move) {
  Rule rule;
  rule.kind = move.kind == Move::Kind::kRamp ? PieceKind::kRamp : PieceKind::kContinue;
  rule.dtype = task.dtype;
  rule.step = rule.kind == PieceKind::kRamp ? move.step : 1;
  rule.inner = task.column_bytes / ItemSize(task.dtype);
  if (rule.step == 1 && rule.inner == 1) {
    auto [known, is_new] = by_one_.try_emplace({rule.kind, rule.dtype}, 0);
    if (is_new) known->second = AddRule(rule);
    return known->second;
  }
  rule.start = move.start;
  return AddRule(rule);
}

// The move's strip as it is in every row, its dest and source counted from the row.
Strip Expansion::Model(const CutTask& task, const Move& move) {
  const int64_t item = ItemSize(task.dtype);
  Strip strip;
  strip.dest = move.to * task.column_bytes;
  strip.size = move.length * task.column_bytes;
  if (move.kind == Move::Kind::kCopy) {
    strip.rule = kCopyRule;
    strip.source = move.from * task.column_bytes;
  } else if (move.kind == Move::Kind::kFill || (move.kind == Move::Kind::kRamp && move.step == 0)) {
    strip.rule = kFillRule;
    const uint64_t bits = move.kind == Move::Kind::kFill
                              ? task.fill.bits
                              : EncodeAs(task.dtype, IntegerNumeric(move.start));
    strip.source = Repeated(bits, item);
  } else {
    strip.rule = NumberRule(task, move);
    strip.size /= item;
    if (move.kind == Move::Kind::kContinue) strip.source = move.from * task.column_bytes;
    const Rule& rule = result_.rules[strip.rule];
    strip.first = rule.inner == 1 && rule.step == 1 ? move.start : 0;
  }
  return strip;
}

absl::Status Expansion::Expand(const CutTask& task, const Footprint& footprint,
                               std::vector<Strip>& strips, Interval& reads) {
  std::vector<bool> staged(task.dests.size(), false);
  for (size_t k = 0; k < task.dests.size(); ++k) {
    if (footprint.dests[k].begin == footprint.dests[k].end) continue;
    CPSHARD_ASSIGN_OR_RETURN(const bool reached, reaches_(task.dests[k]));
    staged[k] = !reached;
  }
  std::vector<std::vector<Strip>> models;  // of each row of moves
  for (const Moves& row : *task.moves) {
    std::vector<Strip>& of_row = models.emplace_back();
    for (const Move& move : row) {
      if (move.length > 0) of_row.push_back(Model(task, move));
    }
  }
  std::optional<bool> source_reached;
  for (int64_t outer = 0; outer < task.outer; ++outer) {
    const size_t row = models.size() == 1 ? 0 : (outer / task.row_divisor) % models.size();
    auto model = models[row].begin();
    for (const Move& move : (*task.moves)[row]) {
      if (move.length == 0) continue;
      Strip strip = *model++;
      strip.dest += AddressOf(task.dests[move.dest]) + outer * task.dest_strides[move.dest];
      strip.stage_dest = staged[move.dest];
      if (move.kind == Move::Kind::kCopy || move.kind == Move::Kind::kContinue) {
        if (!source_reached) {
          CPSHARD_ASSIGN_OR_RETURN(source_reached, reaches_(task.source));
        }
        strip.source += AddressOf(task.source) + outer * task.source_stride;
        strip.stage_source = !*source_reached;
        const Interval read = result_.Reads(strip);
        reads = reads.begin == reads.end
                    ? read
                    : Interval{std::min(reads.begin, read.begin), std::max(reads.end, read.end)};
      }
      strips.push_back(strip);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Interval Strips::Writes(const Strip& strip) const {
  const Rule& rule = rules[strip.rule];
  const int64_t item = CountsElements(rule) ? ItemSize(rule.dtype) : 1;
  return {strip.dest, strip.dest + strip.size * item};
}

Interval Strips::Reads(const Strip& strip) const {
  const Rule& rule = rules[strip.rule];
  switch (rule.kind) {
    case PieceKind::kCopy:
      return {strip.source, strip.source + strip.size};
    case PieceKind::kContinue:
      return {strip.source, strip.source + rule.inner * ItemSize(rule.dtype)};
    case PieceKind::kDerive: {
      const int64_t item = ItemSize(rule.source_dtype);
      const int64_t last = strip.first + strip.size - 1;
      if (!rule.is_diagonal) {
        return {strip.source + strip.first * item, strip.source + (last + 1) * item};
      }
      const int64_t end = last / rule.per_row * rule.row +
                          (last / rule.per_row == strip.first / rule.per_row ? last % rule.per_row
                                                                             : rule.per_row - 1) *
                              rule.next +
                          1;
      const int64_t begin = strip.first / rule.per_row * rule.row;
      return {strip.source + begin * item, strip.source + end * item};
    }
    default:
      return {};
  }
}

absl::StatusOr<Strips> StripsOf(absl::Span<const Task> tasks, const Reaches& reaches) {
  Expansion expansion(reaches);
  for (const Task& task : tasks) {
    CPSHARD_RETURN_IF_ERROR(
        std::visit([&](const auto& of_kind) { return expansion.Add(of_kind); }, task));
  }
  return expansion.Take();
}

}  // namespace cpshard
