// Shapes of shards beside shapes of what they are gathered into.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace cpshard {

// sizes with sizes[dim] = length.
inline std::vector<int64_t> WithLength(at::IntArrayRef sizes, int64_t dim, int64_t length) {
  std::vector<int64_t> with = sizes.vec();
  with[dim] = length;
  return with;
}

inline int64_t ProductOf(at::IntArrayRef sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// [ranks, sizes...]: the shards of all ranks, one after the other.
inline std::vector<int64_t> OfAllRanks(int64_t ranks, at::IntArrayRef sizes) {
  std::vector<int64_t> all = {ranks};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

}  // namespace cpshard
