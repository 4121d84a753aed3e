// What an executor can do: a closed vocabulary of two tasks over plain memory. The tasks carry
// everything; an executor decides nothing.
//
// Memory may lie at any alignment. Destinations do not overlap sources. Where two moves of a task
// write the same bytes the later one stays.
//
// A stream is seen as [outer, columns, inner]: the axes before the sequence axis are one outer
// index, those after it are the bytes of a column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "core/plan/dtype.h"
#include "core/plan/element.h"
#include "core/plan/plan.h"

namespace cpshard {

// One piece of a row: `length` columns of destination `dest`, from column `to` on.
struct Move {
  enum class Kind : uint8_t {
    kCopy,      // columns from ... from + length - 1 of the source row
    kFill,      // the task's fill element
    kContinue,  // element i = source column `from` + start + i: integers wrap, a floating offset is
                // rounded to the dtype, then added in it; not for bool
    kRamp,      // element i = start + step * i, no source
  };
  Kind kind = Kind::kCopy;
  uint8_t step = 0;
  int32_t dest = 0;
  int64_t from = 0;
  int64_t to = 0;
  int64_t length = 0;
  int64_t start = 0;
  friend bool operator==(const Move&, const Move&) = default;
};

using Moves = std::vector<Move>;

// Cut: carries out `moves` for every outer index. Moves are done in the order given, one outer
// index after the other; ordered by source, one pass over a row serves all destinations.
struct CutTask {
  const std::byte* source = nullptr;  // may be null when no move reads it
  int64_t source_stride = 0;          // bytes from one outer index to the next; 0 = one row for all
  int64_t outer = 0;
  int64_t column_bytes = 0;
  DType dtype = DType::kI64;
  Element fill;

  // moves[row] with row = (outer index / row_divisor) % moves.size(); 1 entry = all rows alike.
  // Shared between the streams whose geometry is the same.
  std::shared_ptr<const std::vector<Moves>> moves;
  int64_t row_divisor = 1;

  std::vector<std::byte*> dests;
  std::vector<int64_t> dest_strides;  // bytes from one outer index to the next
};

// Derive: dest[i] = cast(op(cast(source[i]))), element by element. Casts are C++'s, but out of
// range, NaN too, they give the smallest integer, as x86-64 does; to bool = not zero. NaN is not
// zero, -0.0 is. kBitwiseNot takes bool and integers.
struct DeriveTask {
  const std::byte* source = nullptr;
  DType source_dtype = DType::kI64;
  std::byte* dest = nullptr;
  DType dest_dtype = DType::kBool;
  int64_t count = 0;

  // kHeadZeroDiagonal: the source is [rows, heads, queries, keys]; element (b, i) of the dest is
  // source (b, 0, i, i). Otherwise source and dest have the same elements in the same order.
  struct Diagonal {
    int64_t heads = 0, queries = 0, keys = 0;
  };
  bool is_diagonal = false;
  Diagonal diagonal;

  std::optional<DType> cast;  // before op
  Op op = Op::kNone;
  int64_t operand = 0;
};

using Task = std::variant<DeriveTask, CutTask>;

}  // namespace cpshard
