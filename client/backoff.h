// How long to wait before the next try.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace cpshard {

// Doubles from 20 ms to 2 s. Every wait is shortened by chance, up to half, so that the loaders of
// a job do not come back to a restarted server all at once.
class Backoff {
 public:
  explicit Backoff(uint32_t seed) : random_(seed) {}

  absl::Duration Next() {
    const absl::Duration wait = next_;
    next_ = std::min(2 * next_, kLongest);
    return wait * (1.0 - 0.5 * Chance());
  }

  void Reset() { next_ = kShortest; }

  // A wait that somebody else asked for, up to a quarter longer.
  absl::Duration Spread(absl::Duration wait) { return wait * (1.0 + 0.25 * Chance()); }

 private:
  static constexpr absl::Duration kShortest = absl::Milliseconds(20);
  static constexpr absl::Duration kLongest = absl::Seconds(2);

  double Chance() { return std::uniform_real_distribution<double>(0.0, 1.0)(random_); }

  std::mt19937 random_;
  absl::Duration next_ = kShortest;
};

}  // namespace cpshard
