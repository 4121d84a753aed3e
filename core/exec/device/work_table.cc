#include "core/exec/device/work_table.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch/buffer.h"
#include "core/exec/device/bodies.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kMostPieces = INT32_MAX;

// What cutting has to know of a rule. An element of copies and fills is a byte.
struct Unit {
  Unit(const Rule& rule, int64_t piece_bytes) : kind(rule.kind) {
    int64_t widest = 1;  // the most that an element reads or writes
    if (CountsElements(rule)) {
      shift = std::countr_zero(static_cast<uint64_t>(ItemSize(rule.dtype)));
      widest = ItemSize(rule.dtype);
    }
    if (kind == PieceKind::kDerive) widest = std::max(widest, ItemSize(rule.source_dtype));
    most = std::max<int64_t>(piece_bytes / widest, 1);
  }

  PieceKind kind;
  int shift = 0;     // an element writes 2^shift bytes
  int64_t most = 0;  // elements of a piece
};

template <typename T>
void Append(const T* values, size_t count, std::vector<std::byte>& block) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  block.insert(block.end(), bytes, bytes + count * sizeof(T));
}

// Appends the pieces of the strip; returns how many there are.
int64_t Cut(const Strip& strip, const Unit& unit, std::vector<std::byte>& block) {
  const bool by_byte = unit.kind == PieceKind::kCopy || unit.kind == PieceKind::kFill;
  Piece pieces[32];
  size_t ready = 0;
  int64_t count = 0;
  for (int64_t done = 0; done < strip.size; ++count) {
    if (ready == std::size(pieces)) {
      Append(pieces, ready, block);
      ready = 0;
    }
    const uint64_t dest = strip.dest + (static_cast<uint64_t>(done) << unit.shift);
    int64_t take = unit.most;
    const auto beyond = static_cast<int64_t>(
        (dest + (static_cast<uint64_t>(take) << unit.shift)) % uint64_t{kMeet} >> unit.shift);
    if (beyond < take) take -= beyond;
    take = std::min(take, strip.size - done);
    Piece& piece = pieces[ready++];
    piece = {dest, strip.source, by_byte ? 0 : strip.first + done, static_cast<uint32_t>(take),
             strip.rule};
    if (unit.kind == PieceKind::kCopy) piece.source += done;
    if (unit.kind == PieceKind::kFill) piece.source = Rotated(piece.source, done);
    done += take;
  }
  Append(pieces, ready, block);
  return count;
}

absl::Status TooManyPieces(int64_t count, int64_t piece_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a launch of ", count, " pieces of up to ", piece_bytes, " bytes; at most ",
                   kMostPieces, " are possible: cut fewer streams or ranks at a time"));
}

absl::Status TooLong(int64_t bytes, int64_t max_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a work table of ", bytes, " bytes at the least does not fit the ", max_bytes,
                   " that are left of the device's memory"));
}

// Bytes of the table at the least; 0: there is nothing to do. Refused where that is too much.
absl::StatusOr<int64_t> LeastBytes(const Strips& strips, const std::vector<Unit>& units,
                                   int64_t piece_bytes, int64_t max_bytes) {
  int64_t bytes = 0;
  for (const std::vector<Strip>& launch : strips.launches) {
    int64_t count = 0;
    for (const Strip& strip : launch) {
      const int64_t most = units[strip.rule].most;
      count += strip.size <= most ? strip.size > 0 : (strip.size + most - 1) / most;
      if (count > kMostPieces) return TooManyPieces(count, piece_bytes);
    }
    bytes += AlignUp(count * static_cast<int64_t>(sizeof(Piece)));
  }
  if (bytes > 0) bytes += AlignUp(static_cast<int64_t>(strips.rules.size() * sizeof(Rule)));
  if (bytes <= max_bytes) return bytes;
  return TooLong(bytes, max_bytes);
}

}  // namespace

absl::StatusOr<WorkTable> TableOf(const Strips& strips, int64_t piece_bytes, int64_t max_bytes,
                                  std::vector<std::byte> reused) {
  piece_bytes = std::clamp<int64_t>(piece_bytes, 1, int64_t{1} << 30);
  std::vector<Unit> units;
  for (const Rule& rule : strips.rules) units.emplace_back(rule, piece_bytes);
  CPSHARD_ASSIGN_OR_RETURN(const int64_t least, LeastBytes(strips, units, piece_bytes, max_bytes));
  if (least == 0) return WorkTable();
  WorkTable table{std::move(reused), {}};
  table.block.clear();
  // Pieces that end where addresses are even make it a little longer.
  table.block.reserve(std::min(least + least / 8, max_bytes));
  Append(strips.rules.data(), strips.rules.size(), table.block);
  for (const std::vector<Strip>& launch : strips.launches) {
    table.block.resize(AlignUp(static_cast<int64_t>(table.block.size())));
    const auto offset = static_cast<int64_t>(table.block.size());
    int64_t count = 0;
    for (const Strip& strip : launch) {
      count += Cut(strip, units[strip.rule], table.block);
      if (count > kMostPieces) return TooManyPieces(count, piece_bytes);
      const auto bytes = static_cast<int64_t>(table.block.size());
      if (bytes > max_bytes) return TooLong(bytes, max_bytes);
    }
    if (count > 0) table.launches.push_back({offset, count});
  }
  table.block.resize(AlignUp(static_cast<int64_t>(table.block.size())));
  const auto bytes = static_cast<int64_t>(table.block.size());
  if (bytes > max_bytes) return TooLong(bytes, max_bytes);
  return table;
}

}  // namespace cpshard
