// One stream of random numbers, alike on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace cpshard::simulation {

// splitmix64's finisher: every bit of the input reaches every bit of the output.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A hash of several numbers, their order included.
inline uint64_t Hash(std::initializer_list<uint64_t> values) {
  uint64_t hash = 0;
  for (const uint64_t value : values) hash = Mix(hash ^ value);
  return hash;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}

  uint64_t Next() { return Mix(state_++); }
  // [0, n), n at least 1
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  // [low, high]
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace cpshard::simulation
