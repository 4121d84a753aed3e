#include "tests/gpu/anchors.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>

namespace cpshard {
namespace {

double Seconds(std::byte* dest, const std::byte* source, int64_t bytes, cudaMemcpyKind kind,
               int rounds) {
  double least = -1;
  for (int round = 0; round < rounds; ++round) {
    if (cudaDeviceSynchronize() != cudaSuccess) return -1;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kInARow; ++i) {
      if (cudaMemcpyAsync(dest, source, bytes, kind, 0) != cudaSuccess) return -1;
    }
    if (cudaDeviceSynchronize() != cudaSuccess) return -1;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double each = took.count() / kInARow;
    least = least < 0 ? each : std::min(least, each);
  }
  return least;
}

}  // namespace

double DeviceToDeviceSeconds(std::byte* dest, const std::byte* source, int64_t bytes, int rounds) {
  return Seconds(dest, source, bytes, cudaMemcpyDeviceToDevice, rounds);
}

double PinnedToDeviceSeconds(std::byte* dest, const std::byte* pinned, int64_t bytes, int rounds) {
  return Seconds(dest, pinned, bytes, cudaMemcpyHostToDevice, rounds);
}

}  // namespace cpshard
