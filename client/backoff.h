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

  absl::Duration Next() { return After(tries_++) * (1.0 - 0.5 * Chance()); }

  void Reset() { tries_ = 0; }

  // A wait that somebody else asked for, up to a quarter longer.
  absl::Duration Spread(absl::Duration wait) { return wait * (1.0 + 0.25 * Chance()); }

  // The whole wait after so many vain tries since the first.
  static absl::Duration After(int64_t tries) {
    constexpr int64_t kDoublings = 7;  // past the longest
    return std::min(absl::Milliseconds(20) * (int64_t{1} << std::min(tries, kDoublings)),
                    absl::Seconds(2));
  }

 private:
  double Chance() { return std::uniform_real_distribution<double>(0.0, 1.0)(random_); }

  std::mt19937 random_;
  int64_t tries_ = 0;
};

}  // namespace cpshard
