// Whole-tensor steps of the restatement: a rank's slots of a stream, a repeated row, a padding mask
// out of an attention mask; rows taken, flattened, cast and stacked.
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

// [B, H, Q, K] -> [B, min(Q, K)]: the main diagonal of head 0. nullopt = there is no head.
std::optional<Tensor> HeadZeroDiagonal(const Tensor& tensor);

// 1 for every element that is zero.
std::vector<int64_t> ZeroFlags(const Tensor& tensor);

// Rows first ... first + count - 1 of axis 0.
Tensor TakeRows(const Tensor& tensor, int64_t first, int64_t count);

// [B, S, ...] -> [B * S, rest], without the last axis where that is 1 (contract 5.2).
Tensor Flattened(const Tensor& tensor);

// Every element as int64.
Tensor AsInt64(const Tensor& tensor);
std::vector<int64_t> Integers(const Tensor& tensor);

// `values`, row-major, in an integer dtype or bool.
Tensor FromIntegers(const std::string& dtype, std::vector<int64_t> dims,
                    const std::vector<int64_t>& values);

// On a new axis 0. Precondition: at least one, and all of one dtype and shape.
Tensor Stacked(const std::vector<Tensor>& tensors);

}  // namespace cpshard::oracle
