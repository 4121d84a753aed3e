// The two 16-bit formats against an independent statement of rounding: of all values that the
// format has, the nearest one; of two equally near ones, that with the even pattern.
#include "core/plan/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace cpshard {
namespace {

// A format as its definition states it: sign, exponent bits, mantissa bits.
struct Format {
  int exponent_bits, mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
  // The value of a finite, positive pattern; exact in a double. The pattern of infinity counts as
  // the next value of the grid: what lies at or beyond the middle before it rounds to it.
  double ValueOf(uint16_t pattern) const {
    const int exponent = pattern >> mantissa_bits;
    const int mantissa = pattern & ((1 << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias() - mantissa_bits);
  }
};

constexpr Format kF16{5, 10};
constexpr Format kBf16{8, 7};

class Nearest {
 public:
  explicit Nearest(const Format& format) : infinity_(format.infinity()) {
    for (int pattern = 0; pattern <= infinity_; ++pattern) {
      values_.push_back(format.ValueOf(static_cast<uint16_t>(pattern)));
    }
  }

  uint16_t Round(float value) const {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::abs(static_cast<double>(value));
    if (magnitude >= values_.back()) return sign | infinity_;
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    const uint16_t high = static_cast<uint16_t>(above - values_.begin());
    const uint16_t low = high - 1;
    const double to_low = magnitude - values_[low];
    const double to_high = values_[high] - magnitude;
    if (to_low < to_high) return sign | low;
    if (to_high < to_low) return sign | high;
    return sign | (low % 2 == 0 ? low : high);
  }

 private:
  uint16_t infinity_;
  std::vector<double> values_;
};

bool IsNan(uint16_t pattern, const Format& format) {
  return (pattern & 0x7fff) > format.infinity();
}

// Floats of every exponent, dense around what the 16-bit formats can tell apart: each 16-bit
// pattern as the upper half of a float, with lower halves at and beside the ties.
template <typename Fn>
void ForManyFloats(Fn fn) {
  for (uint32_t upper = 0; upper <= 0xffff; ++upper) {
    for (uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u,
                           0xefffu, 0xf000u, 0xf001u, 0xffffu}) {
      fn(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::mt19937 random(20240607);
  for (int i = 0; i < 1'000'000; ++i) fn(std::bit_cast<float>(static_cast<uint32_t>(random())));
}

TEST(Half, EveryF16PatternHasTheValueOfItsDefinition) {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const uint16_t pattern = static_cast<uint16_t>(i);
    const float value = F16BitsToFloat(pattern);
    if (IsNan(pattern, kF16)) {
      ASSERT_TRUE(std::isnan(value)) << i;
    } else if ((pattern & 0x7fff) == kF16.infinity()) {
      ASSERT_TRUE(std::isinf(value)) << i;
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(value)), kF16.ValueOf(pattern & 0x7fff)) << i;
    }
    ASSERT_EQ(std::signbit(value), (pattern & 0x8000) != 0) << i;
  }
}

TEST(Half, EveryBf16PatternIsTheUpperHalfOfAFloat) {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const uint16_t pattern = static_cast<uint16_t>(i);
    ASSERT_EQ(std::bit_cast<uint32_t>(Bf16BitsToFloat(pattern)), i << 16);
  }
}

TEST(Half, EveryPatternThatIsNotNanComesBackUnchanged) {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const uint16_t pattern = static_cast<uint16_t>(i);
    if (!IsNan(pattern, kF16)) {
      ASSERT_EQ(FloatToF16Bits(F16BitsToFloat(pattern)), pattern);
    }
    if (!IsNan(pattern, kBf16)) {
      ASSERT_EQ(FloatToBf16Bits(Bf16BitsToFloat(pattern)), pattern);
    }
  }
}

TEST(Half, NanStaysNanAndKeepsItsSign) {
  for (uint32_t i = 0x7f800001; i <= 0x7fffffff; i += 4093) {
    for (uint32_t bits : {i, i | 0x80000000u}) {
      const float value = std::bit_cast<float>(bits);
      const uint16_t f16 = FloatToF16Bits(value);
      const uint16_t bf16 = FloatToBf16Bits(value);
      ASSERT_TRUE(IsNan(f16, kF16)) << std::hex << bits;
      ASSERT_TRUE(IsNan(bf16, kBf16)) << std::hex << bits;
      ASSERT_EQ(f16 >> 15, bits >> 31);
      ASSERT_EQ(bf16 >> 15, bits >> 31);
    }
  }
}

TEST(Half, FloatRoundsToTheNearestF16AndTiesToEven) {
  const Nearest nearest(kF16);
  ForManyFloats([&](float value) {
    if (std::isnan(value)) return;
    ASSERT_EQ(FloatToF16Bits(value), nearest.Round(value)) << value;
  });
}

TEST(Half, FloatRoundsToTheNearestBf16AndTiesToEven) {
  const Nearest nearest(kBf16);
  ForManyFloats([&](float value) {
    if (std::isnan(value)) return;
    ASSERT_EQ(FloatToBf16Bits(value), nearest.Round(value)) << value;
  });
}

#ifdef __FLT16_MANT_DIG__  // the compiler has the type; not every processor family does in C++
TEST(Half, F16AgreesWithTheCompilersOwnConversion) {
  ForManyFloats([](float value) {
    const uint16_t ours = FloatToF16Bits(value);
    const _Float16 theirs = static_cast<_Float16>(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(IsNan(ours, kF16));
    } else {
      ASSERT_EQ(ours, std::bit_cast<uint16_t>(theirs)) << value;
    }
  });
}
#endif

TEST(Half, TheEdgesOfTheF16RangeRoundAsWrittenInTheStandard) {
  EXPECT_EQ(FloatToF16Bits(65504.0f), 0x7bff);    // the largest
  EXPECT_EQ(FloatToF16Bits(65519.996f), 0x7bff);  // below the middle to 2^16
  EXPECT_EQ(FloatToF16Bits(65520.0f), 0x7c00);    // the middle goes to infinity
  EXPECT_EQ(FloatToF16Bits(0x1p-24f), 0x0001);    // the smallest subnormal
  EXPECT_EQ(FloatToF16Bits(0x1p-25f), 0x0000);    // half of it: a tie, to even
  EXPECT_EQ(FloatToF16Bits(0x1.8p-25f), 0x0001);  // more than half
  EXPECT_EQ(FloatToF16Bits(-0.0f), 0x8000);
}

}  // namespace
}  // namespace cpshard
