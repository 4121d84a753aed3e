// Bits of tokens, and ranges of them counted.
#include "core/plan/token_bits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace cpshard {
namespace {

using Flags = std::vector<bool>;

// Every range of the bits, against the flags counted one by one.
void ExpectBits(const TokenBits& bits, const Flags& flags) {
  const int64_t size = static_cast<int64_t>(flags.size());
  ASSERT_EQ(bits.size(), size);
  for (int64_t begin = 0; begin <= size; ++begin) {
    int64_t count = 0, last = begin;
    for (int64_t end = begin; end <= size; ++end) {
      if (end > begin && flags[end - 1]) {
        ++count;
        last = end;
      }
      ASSERT_EQ(bits.Count(begin, end), count) << size << ": " << begin << " ... " << end;
      ASSERT_EQ(bits.EndOfSet(begin, end), last) << size << ": " << begin << " ... " << end;
    }
  }
}

// A sequence without a period that fits words.
bool Odd(int64_t i) { return i * i % 7 < 3 || i % 67 > 60; }

template <typename T>
ValueView View(DType dtype, const std::vector<T>& values) {
  return {dtype,
          {static_cast<int64_t>(values.size())},
          reinterpret_cast<const std::byte*>(values.data())};
}

TEST(TokenBits, CountsEveryRangeOfEverySize) {
  for (const int64_t size : {0, 1, 2, 63, 64, 65, 127, 128, 129, 200}) {
    std::vector<int64_t> labels;
    Flags flags;
    for (int64_t i = 0; i < size; ++i) {
      flags.push_back(Odd(i));
      labels.push_back(flags.back() ? i : -100);
    }
    ExpectBits(TokenBits::Of(View(DType::kI64, labels), [](auto v) { return v != -100; }), flags);
  }
}

TEST(TokenBits, AreThoseThatWereSet) {
  for (const int64_t size : {1, 64, 130}) {
    for (int64_t begin = 0; begin <= size; begin += 3) {
      for (int64_t end = begin; end <= size; ++end) {
        TokenBits bits(size);
        bits.Set(begin, end);
        bits.CountUp();
        EXPECT_EQ(bits.Count(0, size), end - begin);
        EXPECT_EQ(bits.Count(begin, end), end - begin);
        EXPECT_EQ(bits.Count(0, begin), 0);
      }
    }
  }
}

TEST(TokenBits, MayBeSetBesideThoseOfValuesAndTwice) {
  const std::vector<uint8_t> mask = {0, 1, 0, 0, 0};
  TokenBits bits = TokenBits::Of(View(DType::kBool, mask), [](auto v) { return v != 0; });
  bits.Set(1, 3);
  bits.Set(2, 4);
  bits.CountUp();
  ExpectBits(bits, {false, true, true, true, false});
}

template <typename T>
void ExpectZeroFound(DType dtype, T other) {
  const std::vector<T> values = {0, other, 0, other, other};
  for (size_t offset = 0; offset < sizeof(int64_t); ++offset) {  // at every alignment
    std::vector<std::byte> bytes(offset + sizeof(T) * values.size());
    std::memcpy(bytes.data() + offset, values.data(), sizeof(T) * values.size());
    SCOPED_TRACE(DTypeName(dtype));
    ExpectBits(
        TokenBits::Of(ValueView(dtype, {5}, bytes.data() + offset), [](auto v) { return v == 0; }),
        {true, false, true, false, false});
  }
}

TEST(TokenBits, ReadEveryDType) {
  ExpectZeroFound<uint8_t>(DType::kBool, 1);
  ExpectZeroFound<uint8_t>(DType::kU8, 255);
  ExpectZeroFound<int8_t>(DType::kI8, -128);
  ExpectZeroFound<int16_t>(DType::kI16, -256);
  ExpectZeroFound<int32_t>(DType::kI32, 1 << 30);
  ExpectZeroFound<int64_t>(DType::kI64, int64_t{1} << 40);
  ExpectZeroFound<uint16_t>(DType::kF16, 0x0001);   // the smallest above 0
  ExpectZeroFound<uint16_t>(DType::kBF16, 0x7fc0);  // NaN
  ExpectZeroFound<float>(DType::kF32, std::numeric_limits<float>::quiet_NaN());
  ExpectZeroFound<double>(DType::kF64, -1e-300);
}

TEST(TokenBits, TakeMinusZeroForZero) {
  const std::vector<double> values = {-0.0};
  ExpectBits(TokenBits::Of(View(DType::kF64, values), [](auto v) { return v == 0; }), {true});
}

}  // namespace
}  // namespace cpshard
