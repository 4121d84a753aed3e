// One element of a stream as a value: what stands on fill columns, and its conversion to a dtype.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/dtype.h"

namespace cpshard {

// A number as an option or a rule of the contract states it, before it has a dtype.
// A bool is the integer 0 or 1.
using Number = std::variant<int64_t, double>;

std::string ToString(const Number& number);

// The bytes of one element: the low ItemSize(dtype) bytes of `bits`, little endian.
struct Element {
  uint64_t bits = 0;
  friend bool operator==(const Element&, const Element&) = default;
};

// Converts a fill value to `dtype` (contract 2.2, decision D5): bool = (value != 0); an integer
// target truncates a float value that is in range toward zero; a float target rounds to nearest
// even, f16 and bf16 by way of float as torch does.
// InvalidArgument, naming `stream` and both values: out of range, which for bool and u8 means every
// negative value (-100 included); NaN or infinity into an integer.
absl::StatusOr<Element> ConvertFill(const Number& value, DType dtype, absl::string_view stream);

}  // namespace cpshard
