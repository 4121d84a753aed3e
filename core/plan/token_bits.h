// A bit for every token of a batch, and how many of them are set in any range: what labels or a
// mask say, read once and then counted for the batch, for every rank and for every document.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/plan/value_view.h"

namespace cpshard {

// Values: const methods are safe from several threads at once. Memory: a quarter of a byte a token.
class TokenBits {
 public:
  // None is set.
  explicit TokenBits(int64_t size) : size_(size), words_(size / kBits + 1) {}

  // Bit i is test(value i), which takes any arithmetic type: values are tested as they are stored,
  // 16-bit floats as doubles. Counted.
  template <typename Test>
  static TokenBits Of(const ValueView& values, Test test);

  int64_t size() const { return size_; }

  // Sets [begin, end). Precondition here and below: 0 <= begin <= end <= size().
  void Set(int64_t begin, int64_t end);

  // Makes Count() right after Set().
  void CountUp();

  // Bits that are set in [begin, end). O(1).
  int64_t Count(int64_t begin, int64_t end) const {
    if (begin / kBits != end / kBits) return Before(end) - Before(begin);
    const uint64_t inside = Below(end % kBits) & ~Below(begin % kBits);
    return Ones(words_[begin / kBits].bits & inside);
  }

  // Where [begin, end) ends without the bits behind the last one that is set; `begin` where none
  // is.
  int64_t EndOfSet(int64_t begin, int64_t end) const;

 private:
  static constexpr int64_t kBits = 64;

  struct Word {
    uint64_t bits = 0;
    int64_t before = 0;  // set bits of the words before it
  };

  static uint64_t Below(int64_t bit) { return (uint64_t{1} << bit) - 1; }  // bit < 64

  // Set bits, summed in pairs, fours and bytes; std::popcount is a call where the compiler may not
  // count on an instruction for it.
  static int64_t Ones(uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return static_cast<int64_t>(bits * 0x0101010101010101u >> 56);
  }

  int64_t Before(int64_t end) const {
    const Word& word = words_[end / kBits];
    return word.before + Ones(word.bits & Below(end % kBits));
  }

  int64_t size_;
  std::vector<Word> words_;  // one more than is full, so that Before(size()) has its word
};

namespace token_bits_internal {

// 64 flags of 0 or 1 as the bits of a word: flag i is bit i. The product brings the lowest bits of
// eight bytes side by side into its top byte; no two of them meet, so nothing is carried.
inline uint64_t Packed(const std::array<uint8_t, 64>& flags) {
  uint64_t word = 0;
  for (int byte = 0; byte < 8; ++byte) {
    uint64_t eight;
    std::memcpy(&eight, flags.data() + 8 * byte, sizeof(eight));
    word |= (eight * 0x0102040810204080u >> 56) << (8 * byte);
  }
  return word;
}

// Calls use(index, word) for every word of test(value). read(first, count, values) gives values; of
// full words its count is a constant, so that compilers unroll it and what follows.
template <typename Value, typename Read, typename Test, typename Use>
void ForEachWord(int64_t size, Read read, Test test, Use use) {
  std::array<Value, 64> values;
  std::array<uint8_t, 64> flags;
  for (int64_t word = 0; word < size / 64; ++word) {
    read(word * 64, 64, values.data());
    for (int i = 0; i < 64; ++i) flags[i] = test(values[i]) ? 1 : 0;
    use(word, Packed(flags));
  }
  const int64_t left = size % 64;
  if (left == 0) return;
  read(size - left, left, values.data());
  flags.fill(0);
  for (int64_t i = 0; i < left; ++i) flags[i] = test(values[i]) ? 1 : 0;
  use(size / 64, Packed(flags));
}

}  // namespace token_bits_internal

template <typename Test>
TokenBits TokenBits::Of(const ValueView& values, Test test) {
  TokenBits bits(values.size());
  const auto use = [&](int64_t index, uint64_t word) { bits.words_[index].bits = word; };
  const auto of = [&]<typename Stored>(Stored) {
    const auto read = [&](int64_t first, int64_t count, Stored* out) {
      std::memcpy(out, values.data() + first * sizeof(Stored), count * sizeof(Stored));
    };
    token_bits_internal::ForEachWord<Stored>(values.size(), read, test, use);
  };
  switch (values.dtype()) {
    case DType::kBool:
    case DType::kU8:
      of(uint8_t{});
      break;
    case DType::kI8:
      of(int8_t{});
      break;
    case DType::kI16:
      of(int16_t{});
      break;
    case DType::kI32:
      of(int32_t{});
      break;
    case DType::kI64:
      of(int64_t{});
      break;
    case DType::kF32:
      of(float{});
      break;
    case DType::kF64:
      of(double{});
      break;
    case DType::kF16:
    case DType::kBF16:
      token_bits_internal::ForEachWord<double>(
          values.size(),
          [&](int64_t first, int64_t count, double* out) { values.ReadNumbers(first, count, out); },
          test, use);
      break;
  }
  bits.CountUp();
  return bits;
}

}  // namespace cpshard
