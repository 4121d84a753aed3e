// One call of the body that the host compiles too. Decides nothing.
#define CPSHARD_BODY __host__ __device__ inline

#include "core/exec/cuda_pieces.cuh"

#include <cuda_runtime.h>

#include "core/exec/device/bodies.h"

namespace cpshard {
namespace {

constexpr int kWarpsPerBlock = 8;

// Addresses are numbers in a piece; that they are of global memory, these loads and stores say.
struct GlobalMemory {
  __device__ void Round(uint32_t) {}

  template <typename T>
  __device__ T Load(uint64_t address) {
    if constexpr (sizeof(T) == 16) {
      const uint4 word = __ldca(reinterpret_cast<const uint4*>(address));
      return {{word.x, word.y, word.z, word.w}};
    } else {
      return __ldca(reinterpret_cast<const T*>(address));
    }
  }

  template <typename T>
  __device__ void Store(uint64_t address, T value) {
    if constexpr (sizeof(T) == 16) {
      __stwb(reinterpret_cast<uint4*>(address),
             make_uint4(value.part[0], value.part[1], value.part[2], value.part[3]));
    } else {
      __stwb(reinterpret_cast<T*>(address), value);
    }
  }
};

__global__ void __launch_bounds__(kWarpsPerBlock* kLanes)
    RunPieces(const Rule* rules, const Piece* pieces, int64_t count) {
  const int64_t warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kLanes;
  if (warp >= count) return;
  GlobalMemory memory;
  RunPiece(memory, pieces[warp], rules, threadIdx.x % kLanes);
}

}  // namespace

cudaError_t LoadPieces() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, RunPieces);
}

cudaError_t LaunchPieces(const Rule* rules, const Piece* pieces, int64_t count,
                         cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((count + kWarpsPerBlock - 1) / kWarpsPerBlock);
  void* arguments[] = {&rules, &pieces, &count};
  // Not <<<>>>, which leaves its error where older ones lie.
  return cudaLaunchKernel(RunPieces, dim3(blocks), dim3(kWarpsPerBlock * kLanes), arguments, 0,
                          stream);
}

}  // namespace cpshard
