// Whole-tensor steps of the restatement: a rank's slots of a stream, a repeated row, a padding mask
// out of an attention mask.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/oracle/restatement.h"
#include "core/oracle/values.h"

namespace cpshard::oracle {

// Where the slots of one rank come from.
struct Columns {
  int64_t source_len = 0;      // S: padded columns from here on are fill
  int64_t padded_len = 0;      // P
  std::vector<int64_t> local;  // padded column of every local slot
};

// What stands on fill columns: a value, or the continued row of contract 2.3.
struct Continued {};
using Fill = std::variant<Value, Continued>;

// Axis `axis` of `tensor` (of length S) becomes the rank's slots. nullopt = columns are to be
// filled and the dtype cannot hold the fill.
std::optional<Tensor> CutAxis(const Tensor& tensor, int64_t axis, const Columns& columns,
                              const Fill& fill);

// [1, S] -> [rows, S].
Tensor RepeatedRow(const Tensor& row, int64_t rows);

// i64 [rows, length], 0 ... length-1 in every row.
Tensor CountingRows(int64_t rows, int64_t length);

// True = pad (contract 2.5, D6). nullopt = a mask that cannot be read: 4-D integer, 4-D without a
// head.
std::optional<Tensor> PaddingMaskOf(const Tensor& attention_mask);

}  // namespace cpshard::oracle
