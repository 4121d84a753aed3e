#include "tests/conformance/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cpshard::conformance {
namespace {

// A binary floating format: sign, `exponent_bits`, `mantissa_bits`.
struct FloatFormat {
  int exponent_bits, mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t sign() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
};

FloatFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {5, 10};
    case DType::kBF16:
      return {8, 7};
    case DType::kF32:
      return {8, 23};
    default:
      return {11, 52};
  }
}

// The nearest value of `format`, ties to even. The mantissa is counted in quanta of the value's
// binade (or of the subnormals); the product with a power of two is exact, so only nearbyint
// rounds.
uint64_t RoundTo(const FloatFormat& format, double value) {
  const uint64_t sign = std::signbit(value) ? format.sign() : 0;
  if (std::isnan(value)) return format.infinity() | (uint64_t{1} << (format.mantissa_bits - 1));
  if (std::isinf(value)) return sign | format.infinity();
  if (value == 0) return sign;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int binade = std::max(exponent - 1, 1 - format.bias());
  const double quanta = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - binade));
  // A normal number has the leading bit among its quanta, which raises the exponent field by one.
  const uint64_t field = static_cast<uint64_t>(binade + format.bias() - 1);
  const uint64_t bits = (field << format.mantissa_bits) + static_cast<uint64_t>(quanta);
  return sign | std::min(bits, format.infinity());
}

double ToDouble(const FloatFormat& format, uint64_t bits) {
  const bool negative = (bits & format.sign()) != 0;
  const uint64_t field = (bits & format.infinity()) >> format.mantissa_bits;
  uint64_t mantissa = bits & ((uint64_t{1} << format.mantissa_bits) - 1);
  double value = 0;
  if (field == format.infinity() >> format.mantissa_bits) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else {
    if (field != 0) mantissa |= uint64_t{1} << format.mantissa_bits;
    const int binade = std::max(static_cast<int>(field), 1) - format.bias();
    value = std::ldexp(static_cast<double>(mantissa), binade - format.mantissa_bits);
  }
  return negative ? -value : value;
}

uint64_t BitsOf(const std::byte* element, DType dtype) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, ItemSize(dtype));
  return bits;
}

int64_t SignExtended(uint64_t bits, DType dtype) {
  const int unused = 64 - 8 * static_cast<int>(ItemSize(dtype));
  return static_cast<int64_t>(bits << unused) >> unused;
}

bool InRange(int64_t value, DType dtype) {
  if (dtype == DType::kBool) return value == 0 || value == 1;
  if (dtype == DType::kU8) return value >= 0 && value <= 255;
  return SignExtended(static_cast<uint64_t>(value), dtype) == value;
}

}  // namespace

absl::Status AppendElement(const Json& json, DType dtype, std::vector<std::byte>& bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t bits = 0;
  if (IsFloating(dtype)) {
    const std::optional<double> value = ReadDouble(json);
    if (!value) {
      return absl::InvalidArgumentError(
          absl::StrCat(Excerpt(json), " is not a value of ", DTypeName(dtype)));
    }
    bits = RoundTo(FormatOf(dtype), *value);
  } else {
    std::optional<int64_t> value = ReadInt64(json);
    if (dtype == DType::kBool && json.is_boolean()) value = json.get<bool>() ? 1 : 0;
    if (!value || !InRange(*value, dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Excerpt(json), " is not a value of ", DTypeName(dtype)));
    }
    bits = static_cast<uint64_t>(*value);
  }
  const auto* first = reinterpret_cast<const std::byte*>(&bits);
  bytes.insert(bytes.end(), first, first + ItemSize(dtype));
  return absl::OkStatus();
}

bool SameElement(const std::byte* a, const std::byte* b, DType dtype) {
  if (std::memcmp(a, b, ItemSize(dtype)) == 0) return true;
  if (!IsFloating(dtype)) return false;
  const FloatFormat format = FormatOf(dtype);
  return std::isnan(ToDouble(format, BitsOf(a, dtype))) &&
         std::isnan(ToDouble(format, BitsOf(b, dtype)));
}

std::string ElementText(const std::byte* element, DType dtype) {
  const uint64_t bits = BitsOf(element, dtype);
  if (IsFloating(dtype)) return absl::StrFormat("%.17g", ToDouble(FormatOf(dtype), bits));
  if (dtype == DType::kBool && bits <= 1) return bits == 1 ? "true" : "false";
  if (IsUnsigned(dtype)) return absl::StrCat(bits);
  return absl::StrCat(SignExtended(bits, dtype));
}

}  // namespace cpshard::conformance
