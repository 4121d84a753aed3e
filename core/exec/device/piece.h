// The work of a device as data: pieces of bounded size, one for a warp, and the rules that many
// pieces share. Plain structs, the same on the host, which makes them, and on the device.
#pragma once

#include <cstdint>

#include "core/plan/dtype.h"
#include "core/plan/plan.h"

namespace cpshard {

inline constexpr int kLanes = 32;  // of a warp

enum class PieceKind : uint8_t { kCopy, kFill, kContinue, kRamp, kDerive };

// How a piece makes its bytes. kCopy and kFill need no more than their kind.
struct Rule {
  PieceKind kind = PieceKind::kCopy;
  DType dtype = DType::kI64;         // of what is written
  DType source_dtype = DType::kI64;  // kDerive
  DType cast = DType::kI64;          // kDerive: before the op; source_dtype where there is none
  Op op = Op::kNone;                 // kDerive
  bool is_diagonal = false;          // kDerive
  int64_t operand = 0;               // kDerive

  // kContinue, kRamp: element i has the number start + step * (i / inner).
  int64_t start = 0, step = 1, inner = 1;

  // kDerive of a diagonal: element i is source element i / per_row * row + i % per_row * next.
  int64_t per_row = 1, row = 0, next = 0;

  friend bool operator==(const Rule&, const Rule&) = default;
};

// A part of a move or a derivation: `size` bytes (kCopy, kFill) or elements (the others) from
// `dest` on. No two pieces of one launch write the same byte, and none reads what another writes.
struct Piece {
  uint64_t dest = 0;    // an address
  uint64_t source = 0;  // kCopy: where from; kFill: 8 bytes, repeated, that begin at dest
                        // kContinue: the column that goes on; kDerive: the whole source
  int64_t first = 0;    // kContinue, kRamp, kDerive: number of the piece's first element
  uint32_t size = 0;
  uint32_t rule = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};
static_assert(sizeof(Piece) == 32);

}  // namespace cpshard
