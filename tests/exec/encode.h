// Values as the bytes of a dtype, worked out here from the definition of the formats, and values
// that say where they came from.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/plan/dtype.h"

namespace cpshard {

// Little-endian bits of `value`, which the format must hold exactly (or it is infinite or NaN).
inline uint64_t FloatBits(double value, int exponent_bits, int mantissa_bits) {
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (exponent_bits + mantissa_bits) : 0;
  const uint64_t top = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(value)) return sign | top | uint64_t{1} << (mantissa_bits - 1);
  if (std::isinf(value)) return sign | top;
  if (value == 0) return sign;
  const int exponent = std::ilogb(value);  // |value| = 1.f * 2^exponent
  const double scaled = std::ldexp(std::abs(value), mantissa_bits - exponent);
  const uint64_t mantissa = static_cast<uint64_t>(scaled) - (uint64_t{1} << mantissa_bits);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  return sign | static_cast<uint64_t>(exponent + bias) << mantissa_bits | mantissa;
}

// The element of `dtype` that stands for `value`; an integer dtype must hold it.
inline uint64_t Encode(DType dtype, double value) {
  switch (dtype) {
    case DType::kBool:
      return value != 0 ? 1 : 0;
    case DType::kF16:
      return FloatBits(value, 5, 10);
    case DType::kBF16:
      return FloatBits(value, 8, 7);
    case DType::kF32:
      return FloatBits(value, 8, 23);
    case DType::kF64:
      return FloatBits(value, 11, 52);
    default:
      return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

inline void Put(std::byte* to, DType dtype, double value) {
  const uint64_t bits = Encode(dtype, value);
  std::memcpy(to, &bits, ItemSize(dtype));
}

inline std::vector<std::byte> EncodeAll(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * ItemSize(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    Put(bytes.data() + i * ItemSize(dtype), dtype, values[i]);
  }
  return bytes;
}

}  // namespace cpshard
