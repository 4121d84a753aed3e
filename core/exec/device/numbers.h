// Elements as numbers, on the host and on a device: load, convert, store. What comes out is, bit
// for bit, what x86-64 makes of the same C++ (core/exec/elementwise.cc): a device's own conversions
// and sums lose the payload and the sign of a NaN, so NaN is done in integers here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/exec/device/annotate.h"
#include "core/plan/dtype.h"
#include "core/plan/half.h"

namespace cpshard {

// An element as a number: an integer (bool is 0 or 1), a float (f16 and bf16 too) or a double.
struct Numeric {
  enum class Kind : uint8_t { kInteger, kFloat, kDouble };
  Kind kind = Kind::kInteger;
  int64_t integer = 0;
  float single = 0;
  double wide = 0;
};

CPSHARD_BODY Numeric IntegerNumeric(int64_t value) {
  Numeric numeric;
  numeric.integer = value;
  return numeric;
}

CPSHARD_BODY Numeric FloatNumeric(float value) {
  Numeric numeric;
  numeric.kind = Numeric::Kind::kFloat;
  numeric.single = value;
  return numeric;
}

CPSHARD_BODY Numeric DoubleNumeric(double value) {
  Numeric numeric;
  numeric.kind = Numeric::Kind::kDouble;
  numeric.wide = value;
  return numeric;
}

CPSHARD_BODY bool IsNanBits(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

CPSHARD_BODY double Widen(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (!IsNanBits(bits)) return static_cast<double>(value);
  return std::bit_cast<double>(static_cast<uint64_t>(bits & 0x80000000u) << 32 |
                               uint64_t{0x7ff8} << 48 |
                               static_cast<uint64_t>(bits & 0x7fffffu) << 29);
}

CPSHARD_BODY float Narrow(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  if ((bits & ~(uint64_t{1} << 63)) <= uint64_t{0x7ff} << 52) return static_cast<float>(value);
  return std::bit_cast<float>((static_cast<uint32_t>(bits >> 32) & 0x80000000u) | 0x7fc00000u |
                              (static_cast<uint32_t>(bits >> 29) & 0x7fffffu));
}

// base + offset where the offset is a number: a NaN stays itself, made quiet; infinities that meet
// give x86's own NaN, which is negative.
CPSHARD_BODY float Sum(float base, float offset) {
  const uint32_t bits = std::bit_cast<uint32_t>(base);
  if (IsNanBits(bits)) return std::bit_cast<float>(bits | 0x400000u);
  const float sum = base + offset;
  return IsNanBits(std::bit_cast<uint32_t>(sum)) ? std::bit_cast<float>(0xffc00000u) : sum;
}

CPSHARD_BODY double Sum(double base, double offset) {
  const uint64_t bits = std::bit_cast<uint64_t>(base);
  if ((bits & ~(uint64_t{1} << 63)) <= uint64_t{0x7ff} << 52) return base + offset;  // an int64:
  return std::bit_cast<double>(bits | uint64_t{1} << 51);  // finite, so that no infinities meet
}

// The low ItemSize(dtype) bytes of `bits` as a number.
CPSHARD_BODY Numeric Decode(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kBool:
      return IntegerNumeric((bits & 0xff) != 0);
    case DType::kU8:
      return IntegerNumeric(static_cast<uint8_t>(bits));
    case DType::kI8:
      return IntegerNumeric(static_cast<int8_t>(bits));
    case DType::kI16:
      return IntegerNumeric(static_cast<int16_t>(bits));
    case DType::kI32:
      return IntegerNumeric(static_cast<int32_t>(bits));
    case DType::kI64:
      return IntegerNumeric(static_cast<int64_t>(bits));
    case DType::kF16:
      return FloatNumeric(F16BitsToFloat(static_cast<uint16_t>(bits)));
    case DType::kBF16:
      return FloatNumeric(Bf16BitsToFloat(static_cast<uint16_t>(bits)));
    case DType::kF32:
      return FloatNumeric(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case DType::kF64:
      return DoubleNumeric(std::bit_cast<double>(bits));
  }
  return {};
}

CPSHARD_BODY double AsDouble(const Numeric& number) {
  if (number.kind == Numeric::Kind::kInteger) return static_cast<double>(number.integer);
  return number.kind == Numeric::Kind::kFloat ? Widen(number.single) : number.wide;
}

CPSHARD_BODY float AsFloat(const Numeric& number) {
  if (number.kind == Numeric::Kind::kInteger) return static_cast<float>(number.integer);
  return number.kind == Numeric::Kind::kFloat ? number.single : Narrow(number.wide);
}

// Out of the range of the dtype, NaN too: its smallest integer.
CPSHARD_BODY int64_t AsInteger(const Numeric& number, DType dtype) {
  if (number.kind == Numeric::Kind::kInteger) return number.integer;
  const double whole = ::trunc(AsDouble(number));
  if (dtype == DType::kU8) return whole >= 0 && whole <= 255 ? static_cast<int64_t>(whole) : 0;
  const int bits = static_cast<int>(8 * ItemSize(dtype));
  const double beyond = static_cast<double>(uint64_t{1} << (bits - 1));
  const bool fits = whole >= -beyond && whole < beyond;
  return fits ? static_cast<int64_t>(whole) : INT64_MIN >> (64 - bits);
}

CPSHARD_BODY bool IsZero(const Numeric& number) {
  if (number.kind == Numeric::Kind::kInteger) return number.integer == 0;
  return number.kind == Numeric::Kind::kFloat ? number.single == 0 : number.wide == 0;
}

// The element of `dtype` that `number` is cast to; bytes beyond it are any.
CPSHARD_BODY uint64_t EncodeAs(DType dtype, const Numeric& number) {
  switch (dtype) {
    case DType::kBool:
      return IsZero(number) ? 0 : 1;
    case DType::kF16:
      return FloatToF16Bits(AsFloat(number));
    case DType::kBF16:
      return FloatToBf16Bits(AsFloat(number));
    case DType::kF32:
      return std::bit_cast<uint32_t>(AsFloat(number));
    case DType::kF64:
      return std::bit_cast<uint64_t>(AsDouble(number));
    default:
      return static_cast<uint64_t>(AsInteger(number, dtype));
  }
}

CPSHARD_BODY Numeric CastTo(DType dtype, const Numeric& number) {
  return Decode(dtype, EncodeAs(dtype, number));
}

// `bits`, an element of `dtype`, plus `offset`: integers wrap, a floating offset is rounded to the
// dtype before it is added; a bool has no successor and gives false.
CPSHARD_BODY uint64_t ContinuedBits(DType dtype, uint64_t bits, int64_t offset) {
  const Numeric base = Decode(dtype, bits);
  if (dtype == DType::kBool) return 0;
  if (base.kind == Numeric::Kind::kInteger) {
    return static_cast<uint64_t>(base.integer) + static_cast<uint64_t>(offset);
  }
  if (base.kind == Numeric::Kind::kDouble) {
    return std::bit_cast<uint64_t>(Sum(base.wide, static_cast<double>(offset)));
  }
  const Numeric rounded = CastTo(dtype, IntegerNumeric(offset));
  return EncodeAs(dtype, FloatNumeric(Sum(base.single, rounded.single)));
}

}  // namespace cpshard
