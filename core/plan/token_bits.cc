#include "core/plan/token_bits.h"

#include <algorithm>
#include <bit>

namespace cpshard {

void TokenBits::Set(int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end;) {
    const int64_t bit = at % kBits;
    const int64_t take = std::min(kBits - bit, end - at);
    const uint64_t ones = take == kBits ? ~uint64_t{0} : Below(take) << bit;
    words_[at / kBits].bits |= ones;
    at += take;
  }
}

void TokenBits::CountUp() {
  int64_t before = 0;
  for (Word& word : words_) {
    word.before = before;
    before += Ones(word.bits);
  }
}

int64_t TokenBits::EndOfSet(int64_t begin, int64_t end) const {
  while (end > begin) {
    const int64_t first = std::max(begin, (end - 1) / kBits * kBits);  // of the last word
    const uint64_t bits = words_[first / kBits].bits >> (first % kBits);
    const int64_t length = end - first;
    const uint64_t seen = length == kBits ? bits : bits & Below(length);
    if (seen != 0) return first + std::bit_width(seen);
    end = first;
  }
  return begin;
}

}  // namespace cpshard
