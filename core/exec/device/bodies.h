// What one lane of a warp does for a piece: the kernel's body, compiled for the host as well. The
// lanes of a warp touch neighbouring bytes at a time, so that their accesses join; with 16 bytes a
// lane where the alignment allows. Nothing outside the piece's bytes is read or written.
//
// A body reaches memory through `Memory` (by value of an address): Load<T>(address) and
// Store<T>(address, value), T as wide as the access and the address a multiple of it; Round(r)
// comes before the accesses that the lanes make together.
#pragma once

#include <cstdint>

#include "core/exec/device/annotate.h"
#include "core/exec/device/numbers.h"
#include "core/exec/device/piece.h"

namespace cpshard {

struct alignas(16) Word16 {
  uint32_t part[4];
};

CPSHARD_BODY uint32_t Lesser(uint32_t a, uint32_t b) { return a < b ? a : b; }

template <typename Memory>
CPSHARD_BODY void CopyBytes(Memory& memory, uint64_t dest, uint64_t source, uint32_t size,
                            uint32_t lane, uint32_t round) {
  for (uint32_t i = lane; i < size; i += kLanes) {
    memory.Round(round + i / kLanes);
    memory.template Store<uint8_t>(dest + i, memory.template Load<uint8_t>(source + i));
  }
}

// Words that are aligned on both sides. Several loads of a lane are on their way before the first
// store waits for its own.
template <typename Word, typename Memory>
CPSHARD_BODY void CopyWords(Memory& memory, uint64_t dest, uint64_t source, uint32_t words,
                            uint32_t lane) {
  constexpr uint32_t kAtOnce = 64 / sizeof(Word);
  for (uint32_t i = lane; i < words; i += kAtOnce * kLanes) {
    Word word[kAtOnce];
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint64_t at = uint64_t{i} + k * kLanes;
      memory.Round(1 + i / kLanes + k);
      if (at < words) word[k] = memory.template Load<Word>(source + at * sizeof(Word));
    }
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint64_t at = uint64_t{i} + k * kLanes;
      memory.Round(1 + i / kLanes + k);
      if (at < words) memory.template Store<Word>(dest + at * sizeof(Word), word[k]);
    }
  }
}

// Bytes up to where dest is a multiple of the word, then words, then bytes.
template <typename Word, typename Memory>
CPSHARD_BODY void CopyAligned(Memory& memory, const Piece& piece, uint32_t lane) {
  constexpr uint32_t kWord = sizeof(Word);
  const uint32_t head = Lesser(static_cast<uint32_t>(-piece.dest % kWord), piece.size);
  const uint32_t words = (piece.size - head) / kWord;
  CopyBytes(memory, piece.dest, piece.source, head, lane, 0);
  CopyWords<Word>(memory, piece.dest + head, piece.source + head, words, lane);
  const uint32_t done = head + kWord * words;
  CopyBytes(memory, piece.dest + done, piece.source + done, piece.size - done, lane,
            2 + words / kLanes);
}

// A source that is aligned to less than 4 bytes where dest is: each word out of two. The first of
// them begins before the bytes that are wanted and the last ends behind them; where that would be
// nobody's memory, bytes are copied.
template <typename Memory>
CPSHARD_BODY void CopyShifted(Memory& memory, const Piece& piece, uint32_t lane) {
  uint32_t head = static_cast<uint32_t>(-piece.dest % 4);
  const uint32_t shift = static_cast<uint32_t>((piece.source + head) % 4);
  if (head < shift) head += 4;
  const uint32_t behind = 4 - shift;
  if (piece.size < head + behind + 4) {
    return CopyBytes(memory, piece.dest, piece.source, piece.size, lane, 0);
  }
  const uint32_t words = (piece.size - head - behind) / 4;
  CopyBytes(memory, piece.dest, piece.source, head, lane, 0);
  const uint64_t source = piece.source + head - shift;
  constexpr uint32_t kAtOnce = 4;
  for (uint32_t i = lane; i < words; i += kAtOnce * kLanes) {
    uint32_t word[kAtOnce];
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint64_t at = source + uint64_t{4} * (i + k * kLanes);
      memory.Round(1 + i / kLanes + k);
      if (i + k * kLanes >= words) continue;
      const uint32_t low = memory.template Load<uint32_t>(at);
      word[k] = low >> (8 * shift) | memory.template Load<uint32_t>(at + 4) << (8 * behind);
    }
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      memory.Round(1 + i / kLanes + k);
      if (i + k * kLanes >= words) continue;
      memory.template Store<uint32_t>(piece.dest + head + uint64_t{4} * (i + k * kLanes), word[k]);
    }
  }
  const uint32_t done = head + 4 * words;
  CopyBytes(memory, piece.dest + done, piece.source + done, piece.size - done, lane,
            2 + words / kLanes);
}

// With the widest words that are aligned on both sides: so a warp touches no sector twice.
template <typename Memory>
CPSHARD_BODY void CopyPiece(Memory& memory, const Piece& piece, uint32_t lane) {
  const uint64_t apart = piece.dest ^ piece.source;
  if (apart % 16 == 0) return CopyAligned<Word16>(memory, piece, lane);
  if (apart % 8 == 0) return CopyAligned<uint64_t>(memory, piece, lane);
  if (apart % 4 == 0) return CopyAligned<uint32_t>(memory, piece, lane);
  CopyShifted(memory, piece, lane);
}

// The 8 bytes that repeat, seen from `by` bytes further on.
CPSHARD_BODY uint64_t Rotated(uint64_t bytes, uint64_t by) {
  const uint32_t bits = static_cast<uint32_t>(by % 8 * 8);
  return bits == 0 ? bytes : bytes >> bits | bytes << (64 - bits);
}

template <typename Memory>
CPSHARD_BODY void FillPiece(Memory& memory, const Piece& piece, uint32_t lane) {
  const uint32_t head = Lesser(static_cast<uint32_t>(-piece.dest % 16), piece.size);
  const uint32_t words = (piece.size - head) / 16;
  const uint64_t pattern = Rotated(piece.source, head);
  const uint32_t low = static_cast<uint32_t>(pattern);
  const uint32_t high = static_cast<uint32_t>(pattern >> 32);
  const Word16 word = {{low, high, low, high}};
  for (uint32_t i = lane; i < head; i += kLanes) {
    memory.Round(0);
    memory.template Store<uint8_t>(piece.dest + i, static_cast<uint8_t>(Rotated(piece.source, i)));
  }
  for (uint32_t i = lane; i < words; i += kLanes) {
    memory.Round(1 + i / kLanes);
    memory.template Store<Word16>(piece.dest + head + uint64_t{16} * i, word);
  }
  for (uint32_t i = head + 16 * words + lane; i < piece.size; i += kLanes) {
    memory.Round(2 + words / kLanes);
    memory.template Store<uint8_t>(piece.dest + i, static_cast<uint8_t>(Rotated(piece.source, i)));
  }
}

// An element at any address.
template <typename Memory>
CPSHARD_BODY uint64_t LoadElement(Memory& memory, uint64_t address, int64_t item) {
  if (address % item == 0) {
    if (item == 8) return memory.template Load<uint64_t>(address);
    if (item == 4) return memory.template Load<uint32_t>(address);
    if (item == 2) return memory.template Load<uint16_t>(address);
  }
  uint64_t bits = 0;
  for (int64_t k = 0; k < item; ++k) {
    bits |= static_cast<uint64_t>(memory.template Load<uint8_t>(address + k)) << (8 * k);
  }
  return bits;
}

template <typename Memory>
CPSHARD_BODY void StoreElement(Memory& memory, uint64_t address, int64_t item, uint64_t bits) {
  if (address % item == 0) {
    if (item == 8) return memory.template Store<uint64_t>(address, bits);
    if (item == 4) return memory.template Store<uint32_t>(address, static_cast<uint32_t>(bits));
    if (item == 2) return memory.template Store<uint16_t>(address, static_cast<uint16_t>(bits));
  }
  for (int64_t k = 0; k < item; ++k) {
    memory.template Store<uint8_t>(address + k, static_cast<uint8_t>(bits >> (8 * k)));
  }
}

CPSHARD_BODY bool TestHolds(Op op, const Numeric& x, int64_t operand) {
  const bool integer = x.kind == Numeric::Kind::kInteger;
  switch (op) {
    case Op::kIsZero:
      return IsZero(x);
    case Op::kNotZero:
      return !IsZero(x);
    case Op::kNotPositive:
      return integer ? x.integer <= 0 : AsDouble(x) <= 0;
    default:  // equals: as numbers, so that an operand which the dtype rounds is nobody's equal
      if (integer) return x.integer == operand;
      return AsDouble(x) == static_cast<double>(operand) &&
             (x.kind == Numeric::Kind::kDouble || x.single == static_cast<float>(operand));
  }
}

CPSHARD_BODY uint64_t DerivedBits(const Rule& rule, uint64_t source) {
  Numeric x = Decode(rule.source_dtype, source);
  if (rule.cast != rule.source_dtype) x = CastTo(rule.cast, x);
  if (rule.op == Op::kBitwiseNot && rule.cast == DType::kBool) {
    x.integer = x.integer == 0;
  } else if (rule.op == Op::kBitwiseNot && x.kind == Numeric::Kind::kInteger) {
    x = CastTo(rule.cast, IntegerNumeric(~x.integer));
  } else if (rule.op != Op::kNone && rule.op != Op::kBitwiseNot) {
    x = IntegerNumeric(TestHolds(rule.op, x, rule.operand));
  }
  return EncodeAs(rule.dtype, x);
}

template <typename Memory>
CPSHARD_BODY void DerivePiece(Memory& memory, const Piece& piece, const Rule& rule, uint32_t lane) {
  const int64_t from = ItemSize(rule.source_dtype), item = ItemSize(rule.dtype);
  for (uint32_t i = lane; i < piece.size; i += kLanes) {
    memory.Round(i / kLanes);
    int64_t at = piece.first + i;
    if (rule.is_diagonal) at = at / rule.per_row * rule.row + at % rule.per_row * rule.next;
    const uint64_t bits = LoadElement(memory, piece.source + at * from, from);
    StoreElement(memory, piece.dest + i * item, item, DerivedBits(rule, bits));
  }
}

// kContinue and kRamp.
template <typename Memory>
CPSHARD_BODY void NumberPiece(Memory& memory, const Piece& piece, const Rule& rule, uint32_t lane) {
  const int64_t item = ItemSize(rule.dtype);
  const bool continues = rule.kind == PieceKind::kContinue;
  uint64_t base = 0;  // of all elements, where a column has one: stores lie between the loads
  if (continues && rule.inner == 1) {
    memory.Round(0);
    base = LoadElement(memory, piece.source, item);
  }
  for (uint32_t i = lane; i < piece.size; i += kLanes) {
    memory.Round(1 + i / kLanes);
    const int64_t element = piece.first + i;
    const int64_t column = rule.inner == 1 ? element : element / rule.inner;
    const int64_t number = static_cast<int64_t>(static_cast<uint64_t>(rule.start) +
                                                static_cast<uint64_t>(rule.step) * column);
    if (continues && rule.inner != 1) {
      base = LoadElement(memory, piece.source + element % rule.inner * item, item);
    }
    const uint64_t bits = continues ? ContinuedBits(rule.dtype, base, number)
                                    : EncodeAs(rule.dtype, IntegerNumeric(number));
    StoreElement(memory, piece.dest + i * item, item, bits);
  }
}

template <typename Memory>
CPSHARD_BODY void RunPiece(Memory& memory, const Piece piece, const Rule* rules, uint32_t lane) {
  const Rule& rule = rules[piece.rule];
  switch (rule.kind) {
    case PieceKind::kCopy:
      return CopyPiece(memory, piece, lane);
    case PieceKind::kFill:
      return FillPiece(memory, piece, lane);
    case PieceKind::kDerive:
      return DerivePiece(memory, piece, rule, lane);
    default:
      return NumberPiece(memory, piece, rule, lane);
  }
}

}  // namespace cpshard
