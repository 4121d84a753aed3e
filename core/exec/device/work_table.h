// The work list as a device reads it: all rules and all pieces in one flat block, one upload.
//
//   [ rules | pieces of launch 0 | pieces of launch 1 | ... ]     each part a multiple of 64 bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/device/piece.h"
#include "core/exec/device/strips.h"

namespace cpshard {

inline constexpr int64_t kLongestPiece = 64 << 10;  // bytes; longer ones leave too few warps

struct WorkTable {
  std::vector<std::byte> block;
  struct Launch {
    int64_t offset = 0;  // of its first piece, in bytes of the block
    int64_t pieces = 0;
  };
  std::vector<Launch> launches;  // those without a piece are left out
};

// A piece has at most `piece_bytes` bytes, written or read, whichever are more (one element at
// least); inside a strip, pieces meet at multiples of 128 bytes where elements allow. Runs of any
// length thus become warps of like work. The order of the pieces is that of the strips.
// ResourceExhausted: more than 2^31 - 1 pieces in a launch, or a table of more than `max_bytes`;
// mostly before anything is allocated, since how long it is at the least is counted first. The
// memory of `reused`, the block of a table that is not needed any more, becomes the block's: fresh
// pages cost more than what is written there.
absl::StatusOr<WorkTable> TableOf(const Strips& strips, int64_t piece_bytes, int64_t max_bytes,
                                  std::vector<std::byte> reused = {});

}  // namespace cpshard
