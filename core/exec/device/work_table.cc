#include "core/exec/device/work_table.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/batch/buffer.h"
#include "core/exec/device/bodies.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr uint64_t kMeet =
    128;  // bytes: what the lanes of a warp write at a time, and a cache line
constexpr int64_t kMostPieces = INT32_MAX;

// Bytes that an element (of copies and fills: a byte) writes, and the most that it reads or writes.
struct Unit {
  explicit Unit(const Rule& rule) {
    if (!CountsElements(rule)) return;
    written = widest = ItemSize(rule.dtype);
    if (rule.kind == PieceKind::kDerive) widest = std::max(widest, ItemSize(rule.source_dtype));
  }
  int64_t written = 1, widest = 1;
};

void Cut(const Strip& strip, const Rule& rule, int64_t piece_bytes, std::vector<Piece>& pieces) {
  const Unit unit(rule);
  const int64_t most = std::max<int64_t>(piece_bytes / unit.widest, 1);
  for (int64_t done = 0; done < strip.size;) {
    const uint64_t dest = strip.dest + done * unit.written;
    int64_t take = most;
    const int64_t beyond =
        static_cast<int64_t>((dest + take * unit.written) % kMeet) / unit.written;
    if (beyond < take) take -= beyond;
    take = std::min(take, strip.size - done);
    Piece piece{dest, strip.source, strip.first + done, static_cast<uint32_t>(take), strip.rule};
    if (rule.kind == PieceKind::kCopy) piece.source += done;
    if (rule.kind == PieceKind::kFill) piece.source = Rotated(piece.source, done);
    if (!CountsElements(rule)) piece.first = 0;
    pieces.push_back(piece);
    done += take;
  }
}

absl::Status TooManyPieces(int64_t count, int64_t piece_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a launch of ", count, " pieces of up to ", piece_bytes, " bytes; at most ",
                   kMostPieces, " are possible: cut fewer streams or ranks at a time"));
}

// Refuses by how many pieces there are at the least.
absl::Status CheckLeast(const Strips& strips, int64_t piece_bytes, int64_t max_bytes) {
  int64_t all = 0;
  for (const std::vector<Strip>& launch : strips.launches) {
    int64_t count = 0;
    for (const Strip& strip : launch) {
      const int64_t most =
          std::max<int64_t>(piece_bytes / Unit(strips.rules[strip.rule]).widest, 1);
      count += strip.size / most;
      if (count > kMostPieces) return TooManyPieces(count, piece_bytes);
    }
    all += count;
  }
  const int64_t bytes = all * static_cast<int64_t>(sizeof(Piece));
  if (bytes <= max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "a work table of ", bytes, " bytes at the least does not fit the ", max_bytes,
      " that are left of the device's memory: give the executor more, or shard fewer ranks at a "
      "time"));
}

// Appends the bytes of `values`; returns where they begin.
template <typename T>
int64_t Append(const std::vector<T>& values, std::vector<std::byte>& block) {
  const size_t at = block.size(), bytes = values.size() * sizeof(T);
  block.resize(at + AlignUp(bytes));
  if (bytes > 0) std::memcpy(block.data() + at, values.data(), bytes);
  return static_cast<int64_t>(at);
}

}  // namespace

absl::StatusOr<WorkTable> TableOf(const Strips& strips, int64_t piece_bytes, int64_t max_bytes) {
  piece_bytes = std::clamp<int64_t>(piece_bytes, 1, int64_t{1} << 30);
  CPSHARD_RETURN_IF_ERROR(CheckLeast(strips, piece_bytes, max_bytes));
  WorkTable table;
  Append(strips.rules, table.block);
  std::vector<Piece> pieces;
  for (const std::vector<Strip>& launch : strips.launches) {
    pieces.clear();
    for (const Strip& strip : launch) {
      Cut(strip, strips.rules[strip.rule], piece_bytes, pieces);
    }
    const auto count = static_cast<int64_t>(pieces.size());
    if (count > kMostPieces) return TooManyPieces(count, piece_bytes);
    if (count > 0) table.launches.push_back({Append(pieces, table.block), count});
  }
  return table;
}

}  // namespace cpshard
