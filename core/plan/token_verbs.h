// What the token verbs decide (contract section 9): which steps a tensor of the caller's goes
// through, told from the layout's numbers and the tensor's sizes alone. No element is looked at and
// none is moved: core/exec carries the steps out over bytes, core/torch over at::Tensor.
//
// Int is the integer that lengths are made of: int64_t, or a symbolic one (c10::SymInt), of which
// only + - * / %, comparisons and << are used, each as seldom as can be: asking a symbolic length
// fixes what it is asked. Ranks, axes and cp_size are plain numbers.
//
// Thread-safe: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace cpshard {

// Why a verb does not go ahead.
struct Refusal {
  enum class Kind {  // Python             status (contract D9)
    kArgument,       // ValueError         INVALID_ARGUMENT     a wrong or missing argument
    kOtherLayout,    // ValueError         FAILED_PRECONDITION  not the layout of this tensor
    kNoLayout,       // NotImplementedError FAILED_PRECONDITION nothing to shard or trim by
    kNoAxis,         // IndexError         INVALID_ARGUMENT     an axis that does not exist
  };
  Kind kind = Kind::kArgument;
  std::string text;  // with all numbers, and the way out
};

absl::Status ToStatus(const Refusal& refusal);

template <typename T>
using OrRefusal = std::variant<T, Refusal>;

// What a layout says of itself, as far as the verbs decide by it (contract section 1).
template <typename Int>
struct TokenLayout {
  std::optional<Int> original_seq_len;
  std::optional<Int> padded_seq_len;
  std::optional<std::vector<Int>> input_row_shape;  // [B, S] of the rows before they were flattened
  std::optional<std::vector<Int>> positions_shape;  // of input_token_stream_positions, [B, S]
};

// Which lengths the ranks' columns exist for (9.1). Captured indices win over a closed form;
// neither of them: there is no map yet.
template <typename Int>
struct TokenColumns {
  std::optional<Int> captured;  // slots of the captured indices over all ranks: this length alone
  std::optional<int64_t> divisor;  // closed form: lengths that it divides; identity 1, contiguous
                                   // cp_size, round robin 2 * cp_size
};

// 9.2, to be done in this order; then the rank's columns are selected on `axis`.
template <typename Int>
struct ShardTokenSteps {
  bool reposition = false;  // [B, S] -> [B, padded] of fill; t[b, s] goes to column
                            // positions[b, s] of row b where that is >= 0
  int64_t merged_axes = 0;  // so many leading axes become one; 0 = as they stand
  int64_t axis = 0;         // the sequence axis after that, >= 0
  Int pad = 0;              // fill columns to append on `axis`
  Int columns = 0;          // on `axis` then: what the columns of a rank are selected from
};

// 9.3: the shards, joined in the order of the columns, are `full`; then `trim`.
template <typename Int>
struct GatherTokenSteps {
  enum class Trim {
    kNone,       // full
    kPositions,  // out[b, s] = full[b, positions[b, s]], fill where that is negative
    kRowShape,   // full with `shape`
    kOriginal,   // the first shape[axis] columns of full
  };
  int64_t axis = 0;  // the sequence axis, >= 0
  Int columns = 0;   // of full on `axis`
  Trim trim = Trim::kNone;
  std::vector<Int> shape;  // of the result
};

struct ShardTokenArgs {
  int64_t seq_dim = 1;  // negative counts from the end; not read where the layout repositions or
                        // merges (T49)
  bool has_fill = false;
};

template <typename Int>
struct GatherTokenArgs {
  int64_t seq_dim = 1;  // negative counts from the end; not read of [B, L] that is trimmed by
                        // positions (T49)
  bool trim = false;
  bool has_fill = false;
  int64_t cp_size = 1;           // 1 without a mesh
  bool collective = true;        // false: no group to ask (T53); the rank's own shard is `full`
  std::optional<Int> all_slots;  // slots of all ranks, where they may differ; else cp_size times
                                 // those of `local`
};

namespace token_verbs {

// "[2, 6]"; "none" of an absent one.
template <typename Int>
std::string Text(const Int& number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

template <typename Int>
std::string Text(std::span<const Int> sizes) {
  std::ostringstream text;
  text << "[";
  for (size_t i = 0; i < sizes.size(); ++i) text << (i == 0 ? "" : ", ") << sizes[i];
  text << "]";
  return text.str();
}

template <typename Int>
std::string Text(const std::optional<Int>& number) {
  return number ? Text(*number) : "none";
}

// The texts (token_verbs.cc), of numbers as above.
Refusal NoSuchAxis(const std::string& sizes, int64_t axis);
Refusal TooLong(const std::string& what, const std::string& a, const std::string& b);
Refusal NoMap();
Refusal NotTheCaptured(const std::string& columns, const std::string& captured);
Refusal NotDivisible(const std::string& columns, int64_t divisor);
Refusal NoFillToShard(const std::string& sizes);
Refusal NoFillToTrim(const std::string& positions);
Refusal PositionsWithoutLength(const std::string& positions);
Refusal OtherLength(const std::string& sizes, int64_t axis, const std::string& columns,
                    const std::string& padded, const std::string& original, bool has_fill);
Refusal OriginalBeyondPadded(const std::string& original, const std::string& padded);
Refusal OtherGatheredLength(const std::string& columns, int64_t axis, const std::string& padded);
Refusal NotOfPositions(const std::string& full, const std::string& positions);
Refusal NotOfRowShape(const std::string& full, int64_t axis, const std::string& row_shape);
Refusal OriginalBeyondColumns(const std::string& original, const std::string& columns);
Refusal NothingToTrimTo();

// `seq_dim` counted from the front.
template <typename Int>
OrRefusal<int64_t> AxisOf(std::span<const Int> sizes, int64_t seq_dim) {
  const auto axes = static_cast<int64_t>(sizes.size());
  const int64_t axis = seq_dim < 0 ? seq_dim + axes : seq_dim;
  if (axis < 0 || axis >= axes) return NoSuchAxis(Text(sizes), seq_dim);
  return axis;
}

// The axis that shards of these sizes are joined on. Positions are of [B, S]: what has two axes is
// joined on the second, whatever was asked for (T49).
template <typename Int>
OrRefusal<int64_t> GatherAxis(const TokenLayout<Int>& layout, std::span<const Int> sizes,
                              const GatherTokenArgs<Int>& args) {
  const bool by_positions = args.trim && layout.positions_shape && sizes.size() == 2;
  return AxisOf(sizes, by_positions ? 1 : args.seq_dim);
}

// a * b. Symbolic integers watch over themselves.
template <typename Int>
OrRefusal<Int> Times(const Int& a, const Int& b, const std::string& what) {
  if constexpr (std::is_integral_v<Int>) {
    Int product;
    if (__builtin_mul_overflow(a, b, &product)) return TooLong(what, Text(a), Text(b));
    return product;
  } else {
    return a * b;
  }
}

template <typename Int>
OrRefusal<Int> Product(std::span<const Int> sizes) {
  Int product = 1;
  for (const Int& size : sizes) {
    OrRefusal<Int> next = Times<Int>(product, size, "sizes");
    if (Refusal* refusal = std::get_if<Refusal>(&next)) return std::move(*refusal);
    product = std::get<Int>(std::move(next));
  }
  return product;
}

template <typename Int>
bool StartsWith(std::span<const Int> sizes, const std::vector<Int>& head) {
  if (sizes.size() < head.size()) return false;
  for (size_t i = 0; i < head.size(); ++i) {
    if (sizes[i] != head[i]) return false;
  }
  return true;
}

// 9.1: whether the ranks' columns are of a length of `columns`.
template <typename Int>
std::optional<Refusal> CheckColumns(const TokenColumns<Int>& map, const Int& columns) {
  if (map.captured) {
    if (columns == *map.captured) return std::nullopt;
    return NotTheCaptured(Text(columns), Text(*map.captured));
  }
  if (!map.divisor) return NoMap();
  if (*map.divisor == 1 || columns % Int(*map.divisor) == 0) return std::nullopt;
  return NotDivisible(Text(columns), *map.divisor);
}

// 9.2's fit of `steps.columns` to the layout: how much is to be appended.
template <typename Int>
std::optional<Refusal> Pad(const TokenLayout<Int>& layout, std::span<const Int> sizes,
                           bool has_fill, ShardTokenSteps<Int>& steps) {
  if (!layout.padded_seq_len || steps.columns == *layout.padded_seq_len) return std::nullopt;
  const Int& padded = *layout.padded_seq_len;
  const std::optional<Int>& original = layout.original_seq_len;
  if (!has_fill || !original || steps.columns != *original) {
    return OtherLength(Text(sizes), steps.axis, Text(steps.columns), Text(padded), Text(original),
                       has_fill);
  }
  if (*original > padded) return OriginalBeyondPadded(Text(*original), Text(padded));
  steps.pad = padded - steps.columns;
  steps.columns = padded;
  return std::nullopt;
}

// Whether `rows`, [B, S], can stand for `axis` of a tensor of sizes `full`, and for the axes before
// it: they are of 1 (9.3).
template <typename Int>
bool IsRowShapeOf(const std::vector<Int>& rows, const std::vector<Int>& full, int64_t axis) {
  for (int64_t i = 0; i < axis; ++i) {
    if (full[i] != 1) return false;
  }
  if (rows.size() != 2 || rows[0] < 0 || rows[1] < 0) return false;
  OrRefusal<Int> tokens = Times(rows[0], rows[1], "rows");
  return std::holds_alternative<Int>(tokens) && std::get<Int>(tokens) == full[axis];
}

// Fills in steps.trim and steps.shape, which is full's so far.
template <typename Int>
std::optional<Refusal> Trim(const TokenLayout<Int>& layout, bool has_fill,
                            GatherTokenSteps<Int>& steps) {
  using Trim = typename GatherTokenSteps<Int>::Trim;
  const std::vector<Int> full = steps.shape;
  if (layout.padded_seq_len && steps.columns != *layout.padded_seq_len) {
    return OtherGatheredLength(Text(steps.columns), steps.axis, Text(*layout.padded_seq_len));
  }
  if (layout.positions_shape) {
    const std::vector<Int>& positions = *layout.positions_shape;
    if (!has_fill) return NoFillToTrim(Text(std::span<const Int>(positions)));
    if (full.size() != 2 || positions.size() != 2 || full[0] != positions[0]) {
      return NotOfPositions(Text(std::span<const Int>(full)),
                            Text(std::span<const Int>(positions)));
    }
    steps.trim = Trim::kPositions;
    steps.shape = positions;
    return std::nullopt;
  }
  if (layout.input_row_shape) {
    const std::vector<Int>& rows = *layout.input_row_shape;
    if (!IsRowShapeOf(rows, full, steps.axis)) {
      return NotOfRowShape(Text(std::span<const Int>(full)), steps.axis,
                           Text(std::span<const Int>(rows)));
    }
    steps.trim = Trim::kRowShape;
    steps.shape = rows;
    steps.shape.insert(steps.shape.end(), full.begin() + steps.axis + 1, full.end());
    return std::nullopt;
  }
  if (!layout.original_seq_len) return NothingToTrimTo();
  if (*layout.original_seq_len < 0 || *layout.original_seq_len > steps.columns) {
    return OriginalBeyondColumns(Text(*layout.original_seq_len), Text(steps.columns));
  }
  steps.trim = Trim::kOriginal;
  steps.shape[steps.axis] = *layout.original_seq_len;
  return std::nullopt;
}

}  // namespace token_verbs

// shard_token_tensor (9.2) of a tensor of these sizes. The first rule that fits: positions of
// exactly its shape; a row shape that its leading axes have; as it stands.
template <typename Int>
OrRefusal<ShardTokenSteps<Int>> DecideShardToken(const TokenLayout<Int>& layout,
                                                 const TokenColumns<Int>& map,
                                                 std::span<const Int> sizes,
                                                 const ShardTokenArgs& args) {
  ShardTokenSteps<Int> steps;
  std::vector<Int> merged(sizes.begin(), sizes.end());
  const auto& positions = layout.positions_shape;
  const auto& rows = layout.input_row_shape;
  if (positions && positions->size() == 2 && sizes.size() == 2 &&
      token_verbs::StartsWith(sizes, *positions)) {
    if (!args.has_fill) return token_verbs::NoFillToShard(token_verbs::Text(sizes));
    if (!layout.padded_seq_len) {
      return token_verbs::PositionsWithoutLength(token_verbs::Text(sizes));
    }
    steps.reposition = true;
    steps.axis = 1;
    merged[1] = *layout.padded_seq_len;
  } else if (rows && !rows->empty() && token_verbs::StartsWith(sizes, *rows)) {
    OrRefusal<Int> tokens = token_verbs::Product(sizes.subspan(0, rows->size()));
    if (Refusal* refusal = std::get_if<Refusal>(&tokens)) return std::move(*refusal);
    steps.merged_axes = static_cast<int64_t>(rows->size());
    merged.erase(merged.begin(), merged.begin() + steps.merged_axes - 1);
    merged[0] = std::get<Int>(std::move(tokens));
  } else {
    OrRefusal<int64_t> axis = token_verbs::AxisOf(sizes, args.seq_dim);
    if (Refusal* refusal = std::get_if<Refusal>(&axis)) return std::move(*refusal);
    steps.axis = std::get<int64_t>(axis);
  }
  steps.columns = merged[steps.axis];
  if (auto refusal = token_verbs::Pad<Int>(layout, merged, args.has_fill, steps)) {
    return *std::move(refusal);
  }
  if (auto refusal = token_verbs::CheckColumns(map, steps.columns)) return *std::move(refusal);
  return steps;
}

// gather_token_tensor (9.3) of a rank's shard of these sizes.
template <typename Int>
OrRefusal<GatherTokenSteps<Int>> DecideGatherToken(const TokenLayout<Int>& layout,
                                                   const TokenColumns<Int>& map,
                                                   std::span<const Int> sizes,
                                                   const GatherTokenArgs<Int>& args) {
  GatherTokenSteps<Int> steps;
  OrRefusal<int64_t> axis = token_verbs::GatherAxis(layout, sizes, args);
  if (Refusal* refusal = std::get_if<Refusal>(&axis)) return std::move(*refusal);
  steps.axis = std::get<int64_t>(axis);
  const Int& slots = sizes[steps.axis];
  OrRefusal<Int> all = args.all_slots
                           ? OrRefusal<Int>(*args.all_slots)
                           : token_verbs::Times<Int>(slots, args.cp_size, "slots * cp_size");
  if (Refusal* refusal = std::get_if<Refusal>(&all)) return std::move(*refusal);
  steps.columns = std::get<Int>(std::move(all));
  if (auto refusal = token_verbs::CheckColumns(map, steps.columns)) return *std::move(refusal);
  if (!args.collective) steps.columns = slots;
  steps.shape.assign(sizes.begin(), sizes.end());
  steps.shape[steps.axis] = steps.columns;
  if (!args.trim) return steps;
  if (auto refusal = token_verbs::Trim(layout, args.has_fill, steps)) return *std::move(refusal);
  return steps;
}

}  // namespace cpshard
