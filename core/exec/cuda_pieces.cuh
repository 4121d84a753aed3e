// The kernel: a warp for every piece.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/exec/device/piece.h"

namespace cpshard {

// Whether there is machine code for the current device; makes it ready there.
cudaError_t LoadPieces();

// Enqueues all pieces on `stream`. Both pointers are of the device's memory. The error is this
// launch's own, or a sticky one, not what the thread has left over from before.
cudaError_t LaunchPieces(const Rule* rules, const Piece* pieces, int64_t count,
                         cudaStream_t stream);

}  // namespace cpshard
