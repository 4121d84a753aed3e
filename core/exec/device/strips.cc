#include "core/exec/device/strips.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/exec/device/bodies.h"
#include "core/exec/device/launch_order.h"
#include "core/exec/device/overlaps.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr uint32_t kCopyRule = 0, kFillRule = 1;

uint64_t AddressOf(const std::byte* memory) { return reinterpret_cast<uintptr_t>(memory); }

bool IsEmpty(const Interval& interval) { return interval.begin == interval.end; }

// A hull of both.
Interval Around(const Interval& a, const Interval& b) {
  if (IsEmpty(a)) return b;
  return IsEmpty(b) ? a : Interval{std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

// The element again and again, in 8 bytes.
uint64_t Repeated(uint64_t bits, int64_t item) {
  for (int64_t have = item; have < 8; have *= 2) {
    bits &= (uint64_t{1} << (8 * have)) - 1;
    bits |= bits << (8 * have);
  }
  return bits;
}

// How many strips a task becomes, where its rows have as many moves as the first.
int64_t StripsLikely(const Task& task) {
  const auto* cut = std::get_if<CutTask>(&task);
  if (cut == nullptr) return 1;
  if (cut->outer == 0) return 0;
  return static_cast<int64_t>(cut->moves->front().size()) * cut->outer;
}

class Expansion {
 public:
  Expansion(absl::Span<const Task> tasks, const AccessTo& access_to) : access_to_(access_to) {
    result_.rules.resize(2);
    result_.rules[kFillRule].kind = PieceKind::kFill;
    if (tasks.size() < 2) return;
    int64_t likely = 0;  // mostly all are of the first launch
    for (const Task& task : tasks) likely += StripsLikely(task);
    result_.launches.emplace_back().reserve(likely);
  }

  absl::Status Add(const DeriveTask& task) {
    if (task.count == 0) return absl::OkStatus();
    Strip all{AddressOf(task.dest), AddressOf(task.source), 0, task.count,
              AddRule(DeriveRule(task))};
    const Interval read = result_.Reads(all), written = result_.Writes(all);
    CPSHARD_ASSIGN_OR_RETURN(all.source_memory, NumberOf(read));
    CPSHARD_ASSIGN_OR_RETURN(all.dest_memory, NumberOf(written));
    std::vector<Strip> rows = Rows(all);
    Place(rows, order_.Place(read, {&written, 1}));
    return absl::OkStatus();
  }

  absl::Status Add(const CutTask& task) {
    if (task.outer == 0 || task.column_bytes == 0) return absl::OkStatus();
    Expand(task);
    if (strips_.empty()) return absl::OkStatus();
    CPSHARD_ASSIGN_OR_RETURN(const Interval read, NameMemory(task.dests.size()));
    const Footprint footprint = FootprintOf(task);
    if (footprint.overlaps) CPSHARD_RETURN_IF_ERROR(KeepTheLater(result_, strips_));
    Place(strips_, order_.Place(read, footprint.dests));
    return absl::OkStatus();
  }

  Strips Take() { return std::move(result_); }

 private:
  uint32_t AddRule(const Rule& rule) {
    result_.rules.push_back(rule);
    return static_cast<uint32_t>(result_.rules.size() - 1);
  }

  // A diagonal reads a small part of each row, or even of what lies between its ends: strips of
  // which no more need be staged.
  std::vector<Strip> Rows(const Strip& all) const {
    const Rule& rule = result_.rules[all.rule];
    if (!rule.is_diagonal) return {all};
    const bool by_element =
        all.source_memory != kReachedMemory && rule.next * ItemSize(rule.source_dtype) > kFarApart;
    const int64_t most = by_element ? 1 : rule.per_row;
    std::vector<Strip> rows;
    for (int64_t first = 0; first < all.size; first += most) {
      Strip& row = rows.emplace_back(all);
      row.first = first;
      row.size = std::min(most, all.size - first);
      row.dest += first * ItemSize(rule.dtype);
    }
    return rows;
  }

  // Takes the strips where nothing is expected to come behind them.
  void Place(std::vector<Strip>& strips, size_t launch) {
    if (result_.launches.size() <= launch) result_.launches.resize(launch + 1);
    std::vector<Strip>& all = result_.launches[launch];
    if (all.capacity() == 0) {
      all = std::exchange(strips, {});
    } else {
      all.insert(all.end(), strips.begin(), strips.end());
    }
  }

  // The number of the memory between a first and a last byte.
  absl::StatusOr<uint32_t> NumberOf(const Interval& memory) {
    if (IsEmpty(memory)) return kReachedMemory;
    CPSHARD_ASSIGN_OR_RETURN(const Access access, access_to_(memory));
    if (access == Access::kInPlace) return kReachedMemory;
    if (access == Access::kBounced) return kPageableMemory;
    result_.pinned.push_back(memory);
    return static_cast<uint32_t>(kPinnedMemory + result_.pinned.size() - 1);
  }

  void Expand(const CutTask& task);
  absl::StatusOr<Interval> NameMemory(size_t num_dests);
  Strip Model(const CutTask& task, const Move& move);
  uint32_t NumberRule(const CutTask& task, const Move& move);

  const AccessTo& access_to_;
  Strips result_;
  std::vector<Strip> strips_;  // of the task that is being added; its memory serves them all
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

// strips_ of all rows; for the memory they write they have the number of the destination.
void Expansion::Expand(const CutTask& task) {
  const std::vector<Moves>& rows = *task.moves;
  strips_.clear();
  strips_.reserve(StripsLikely(task));
  const auto add = [&](Strip strip, const Move& move, int64_t outer) {
    strip.dest += AddressOf(task.dests[move.dest]) + outer * task.dest_strides[move.dest];
    strip.dest_memory = move.dest;
    if (move.kind == Move::Kind::kCopy || move.kind == Move::Kind::kContinue) {
      strip.source += AddressOf(task.source) + outer * task.source_stride;
    }
    strips_.push_back(strip);
  };
  if (task.outer == 1) {
    for (const Move& move : rows.front()) {
      if (move.length > 0) add(Model(task, move), move, 0);
    }
    return;
  }
  std::vector<std::vector<Strip>> models(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const Move& move : rows[row]) models[row].push_back(Model(task, move));
  }
  for (int64_t outer = 0; outer < task.outer; ++outer) {
    const size_t row = rows.size() == 1 ? 0 : (outer / task.row_divisor) % rows.size();
    for (size_t i = 0; i < rows[row].size(); ++i) {
      if (rows[row][i].length > 0) add(models[row][i], rows[row][i], outer);
    }
  }
}

// Gives strips_ the numbers of their memory; returns from where to where they read.
absl::StatusOr<Interval> Expansion::NameMemory(size_t num_dests) {
  Interval read;
  std::vector<Interval> written(num_dests);
  for (const Strip& strip : strips_) {
    read = Around(read, result_.Reads(strip));
    Interval& dest = written[strip.dest_memory];
    dest = Around(dest, result_.Writes(strip));
  }
  CPSHARD_ASSIGN_OR_RETURN(const uint32_t source, NumberOf(read));
  std::vector<uint32_t> dests;
  for (const Interval& dest : written) {
    CPSHARD_ASSIGN_OR_RETURN(dests.emplace_back(), NumberOf(dest));
  }
  for (Strip& strip : strips_) {
    if (!IsEmpty(result_.Reads(strip))) strip.source_memory = source;
    strip.dest_memory = dests[strip.dest_memory];
  }
  return read;
}

}  // namespace

Rule DeriveRule(const DeriveTask& task) {
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
  return rule;
}

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
      // Of several rows, from where the first begins to where the last one's diagonal ends.
      const int64_t row = strip.first / rule.per_row, last_row = last / rule.per_row;
      const bool is_one = row == last_row;
      const int64_t from = is_one ? strip.first % rule.per_row : 0;
      const int64_t to = is_one ? last % rule.per_row : rule.per_row - 1;
      const int64_t begin = row * rule.row + from * rule.next;
      const int64_t end = last_row * rule.row + to * rule.next + 1;
      return {strip.source + begin * item, strip.source + end * item};
    }
    default:
      return {};
  }
}

absl::StatusOr<Strips> StripsOf(absl::Span<const Task> tasks, const AccessTo& access_to) {
  Expansion expansion(tasks, access_to);
  for (const Task& task : tasks) {
    CPSHARD_RETURN_IF_ERROR(
        std::visit([&](const auto& of_kind) { return expansion.Add(of_kind); }, task));
  }
  return expansion.Take();
}

}  // namespace cpshard
