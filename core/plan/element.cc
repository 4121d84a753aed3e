#include "core/plan/element.h"

#include <bit>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/half.h"

namespace cpshard {
namespace {

constexpr double kMaxF16 = 65504.0;
constexpr double kMaxBf16 = 3.3895313892515355e38;

absl::Status OutOfRange(const Number& value, DType dtype, absl::string_view stream) {
  return absl::InvalidArgumentError(absl::StrCat("stream '", stream, "' would be filled with ",
                                                 ToString(value), ", which its dtype ",
                                                 DTypeName(dtype), " cannot hold"));
}

struct IntegerRange {
  int64_t low, high;
};

constexpr IntegerRange RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return {0, 255};
    case DType::kI8:
      return {-128, 127};
    case DType::kI16:
      return {-32768, 32767};
    case DType::kI32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

absl::StatusOr<Element> ToInteger(const Number& value, DType dtype, absl::string_view stream) {
  const IntegerRange range = RangeOf(dtype);
  if (const int64_t* integer = std::get_if<int64_t>(&value)) {
    if (*integer < range.low || *integer > range.high) return OutOfRange(value, dtype, stream);
    return Element{static_cast<uint64_t>(*integer)};
  }
  // As torch: the value itself must be in range, then it is truncated. The comparisons also refuse
  // NaN; 2^63 is exact in a double, 2^63 - 1 is not.
  const double real = std::get<double>(value);
  const bool below_end =
      dtype == DType::kI64 ? real < 9223372036854775808.0 : real <= static_cast<double>(range.high);
  if (!(real >= static_cast<double>(range.low) && below_end)) {
    return OutOfRange(value, dtype, stream);
  }
  return Element{static_cast<uint64_t>(static_cast<int64_t>(real))};
}

double AsDouble(const Number& value) {
  return std::visit([](auto v) { return static_cast<double>(v); }, value);
}

// An int64 goes to float in one rounding, not by way of double.
float AsFloat(const Number& value) {
  return std::visit([](auto v) { return static_cast<float>(v); }, value);
}

absl::StatusOr<Element> ToFloating(const Number& value, DType dtype, absl::string_view stream) {
  const double real = AsDouble(value);
  const double max = dtype == DType::kF16    ? kMaxF16
                     : dtype == DType::kBF16 ? kMaxBf16
                     : dtype == DType::kF32  ? std::numeric_limits<float>::max()
                                             : std::numeric_limits<double>::max();
  if (std::isfinite(real) && std::abs(real) > max) return OutOfRange(value, dtype, stream);
  switch (dtype) {
    case DType::kF16:
      return Element{FloatToF16Bits(AsFloat(value))};
    case DType::kBF16:
      return Element{FloatToBf16Bits(AsFloat(value))};
    case DType::kF32:
      return Element{std::bit_cast<uint32_t>(AsFloat(value))};
    default:
      return Element{std::bit_cast<uint64_t>(real)};
  }
}

}  // namespace

std::string ToString(const Number& number) {
  return std::visit([](auto v) { return absl::StrCat(v); }, number);
}

absl::StatusOr<Element> ConvertFill(const Number& value, DType dtype, absl::string_view stream) {
  if (dtype == DType::kBool) {
    if (AsDouble(value) < 0.0) return OutOfRange(value, dtype, stream);
    return Element{AsDouble(value) != 0.0 ? 1u : 0u};
  }
  if (IsFloating(dtype)) return ToFloating(value, dtype, stream);
  return ToInteger(value, dtype, stream);
}

}  // namespace cpshard
