#include "core/oracle/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace cpshard::oracle {
namespace {

// A 16-bit float: sign, exponent, fraction.
struct SmallFloat {
  int exponent_bits;
  int fraction_bits;

  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int SmallestStep() const { return 1 - Bias() - fraction_bits; }  // of the subnormals, as 2^n
  uint16_t Infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  }
  double Largest() const {
    return std::ldexp(std::ldexp(2.0, fraction_bits) - 1.0, Bias() - fraction_bits);
  }
};

constexpr SmallFloat kF16 = {.exponent_bits = 5, .fraction_bits = 10};
constexpr SmallFloat kBF16 = {.exponent_bits = 8, .fraction_bits = 7};

template <typename T>
T Read(const Element& element) {
  T value;
  std::memcpy(&value, element.data(), sizeof value);
  return value;
}

template <typename T>
Element Write(T value) {
  Element element = {};
  std::memcpy(element.data(), &value, sizeof value);
  return element;
}

double Decode(uint16_t bits, SmallFloat format) {
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  const int magnitude = bits & 0x7fff;
  const int exponent = magnitude >> format.fraction_bits;
  const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
  if (magnitude > format.Infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == format.Infinity()) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, format.SmallestStep());
  const int with_leading_one = fraction + (1 << format.fraction_bits);
  return sign * std::ldexp(with_leading_one, exponent - format.Bias() - format.fraction_bits);
}

// Rounds to the nearest value of the format, ties to the even one.
uint16_t Encode(double value, SmallFloat format) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return static_cast<uint16_t>(sign | format.Infinity() | 1 << (format.fraction_bits - 1));
  }
  if (std::isinf(value)) return static_cast<uint16_t>(sign | format.Infinity());
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  int exponent = 0;  // magnitude = [0.5, 1) * 2^exponent
  std::frexp(magnitude, &exponent);
  const int step = std::max(exponent - 1 - format.fraction_bits, format.SmallestStep());
  const double steps = std::nearbyint(std::ldexp(magnitude, -step));
  if (std::ldexp(steps, step) > format.Largest()) {
    return static_cast<uint16_t>(sign | format.Infinity());
  }
  // `steps` carries the leading one, so it raises the exponent field by itself.
  const int field = (step - format.SmallestStep()) << format.fraction_bits;
  return static_cast<uint16_t>(sign | (field + static_cast<int>(steps)));
}

double LargestFloat(const std::string& dtype) {
  if (dtype == "f16") return kF16.Largest();
  if (dtype == "bf16") return kBF16.Largest();
  if (dtype == "f32") return std::numeric_limits<float>::max();
  return std::numeric_limits<double>::max();
}

Element FloatElement(double value, const std::string& dtype) {
  if (dtype == "f16") return Write(Encode(value, kF16));
  if (dtype == "bf16") return Write(Encode(value, kBF16));
  if (dtype == "f32") return Write(static_cast<float>(value));
  return Write(value);
}

double NumberOf(const Element& element, const std::string& float_dtype) {
  if (float_dtype == "f16") return Decode(Read<uint16_t>(element), kF16);
  if (float_dtype == "bf16") return Decode(Read<uint16_t>(element), kBF16);
  if (float_dtype == "f32") return Read<float>(element);
  return Read<double>(element);
}

struct Range {
  int64_t low, high;
};

Range IntegerRange(const std::string& dtype) {
  if (dtype == "u8") return {0, 255};
  if (dtype == "i8") return {INT8_MIN, INT8_MAX};
  if (dtype == "i16") return {INT16_MIN, INT16_MAX};
  if (dtype == "i32") return {INT32_MIN, INT32_MAX};
  return {INT64_MIN, INT64_MAX};
}

// A float value for an integer stream is truncated toward zero, if it lies in the range at all.
std::optional<int64_t> AsInteger(const Value& value, Range range) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    if (*integer < range.low || *integer > range.high) return std::nullopt;
    return *integer;
  }
  const double number = std::get<double>(value);
  const auto high = static_cast<double>(range.high);  // of i64: 2^63, one too many
  const bool fits = number >= static_cast<double>(range.low) &&
                    (range.high == INT64_MAX ? number < high : number <= high);
  if (!fits) return std::nullopt;  // NaN too
  return static_cast<int64_t>(number);
}

}  // namespace

int64_t ElementSize(const std::string& dtype) {
  if (dtype == "bool" || dtype == "u8" || dtype == "i8") return 1;
  if (dtype == "i16" || dtype == "f16" || dtype == "bf16") return 2;
  if (dtype == "i32" || dtype == "f32") return 4;
  if (dtype == "i64" || dtype == "f64") return 8;
  return 0;
}

bool IsFloat(const std::string& dtype) {
  return dtype == "f16" || dtype == "bf16" || dtype == "f32" || dtype == "f64";
}

bool IsZero(const Element& element, const std::string& dtype) {
  if (IsFloat(dtype)) return NumberOf(element, dtype) == 0;
  return Read<uint64_t>(element) == 0;
}

int64_t IntegerOf(const Element& element, const std::string& dtype) {
  if (dtype == "bool" || dtype == "u8") return Read<uint8_t>(element);
  if (dtype == "i8") return Read<int8_t>(element);
  if (dtype == "i16") return Read<int16_t>(element);
  if (dtype == "i32") return Read<int32_t>(element);
  if (dtype == "i64") return Read<int64_t>(element);
  const double number = NumberOf(element, dtype);
  return AsInteger(number, IntegerRange("i64")).value_or(INT64_MIN);
}

std::optional<Element> FillElement(const Value& value, const std::string& dtype) {
  const double number = std::visit([](auto any) { return static_cast<double>(any); }, value);
  if (dtype == "bool") {
    if (number < 0) return std::nullopt;  // D5
    return Write(static_cast<uint8_t>(number != 0));
  }
  if (IsFloat(dtype)) {
    if (std::isfinite(number) && std::fabs(number) > LargestFloat(dtype)) return std::nullopt;
    return FloatElement(number, dtype);
  }
  const std::optional<int64_t> integer = AsInteger(value, IntegerRange(dtype));
  if (!integer) return std::nullopt;
  Element element = {};
  const Element whole = Write(*integer);
  std::copy_n(whole.begin(), ElementSize(dtype), element.begin());
  return element;
}

std::optional<Element> ContinuedElement(const Element& last, int64_t offset,
                                        const std::string& dtype) {
  if (dtype == "bool") return std::nullopt;
  if (dtype == "f64") return Write(Read<double>(last) + static_cast<double>(offset));
  if (dtype == "f32") return Write(Read<float>(last) + static_cast<float>(offset));
  if (dtype == "f16" || dtype == "bf16") {
    const SmallFloat format = dtype == "f16" ? kF16 : kBF16;
    const float step = static_cast<float>(Decode(Encode(offset, format), format));
    const float start = static_cast<float>(Decode(Read<uint16_t>(last), format));
    return Write(Encode(start + step, format));
  }
  const Element sum = Write(Read<uint64_t>(last) + static_cast<uint64_t>(offset));
  Element element = {};  // the low bytes: the sum wraps in its dtype
  std::copy_n(sum.begin(), ElementSize(dtype), element.begin());
  return element;
}

}  // namespace cpshard::oracle
