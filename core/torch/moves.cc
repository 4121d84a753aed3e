#include "core/torch/moves.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace cpshard {
namespace {

constexpr int64_t kBytesPerThread = int64_t{1} << 18;
constexpr int64_t kMostPieces = 8;

// Bytes before each rank's shard.
std::vector<int64_t> Offsets(const ShardGeometry& geometry) {
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const int64_t slots : geometry.slots) {
    offsets.push_back(offset);
    offset += geometry.outer * slots * geometry.inner_bytes;
  }
  return offsets;
}

// copy(offset in the shards, offset in full, bytes) of every move of every outer index.
template <typename Copy>
void ForEachPiece(c10::ArrayRef<TokenMove> moves, const ShardGeometry& geometry, Copy copy) {
  const std::vector<int64_t> offsets = Offsets(geometry);
  const auto count = static_cast<int64_t>(moves.size());
  const int64_t bytes = geometry.outer * geometry.columns * geometry.inner_bytes;
  const int64_t pieces = geometry.outer * count;
  if (pieces == 0 || bytes == 0) return;
  const int64_t grain =
      std::max<int64_t>(1, kBytesPerThread / std::max<int64_t>(1, bytes / pieces));
  at::parallel_for(0, pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / count;
      const TokenMove& move = moves[i % count];
      const int64_t in_shards = outer * geometry.slots[move.rank] + move.slot;
      const int64_t in_full = outer * geometry.columns + move.column;
      copy(offsets[move.rank] + in_shards * geometry.inner_bytes, in_full * geometry.inner_bytes,
           move.length * geometry.inner_bytes);
    }
  });
}

// Where rank `rank` holds its piece `k`; -1: in no one place.
std::vector<std::vector<int64_t>> PieceColumns(c10::ArrayRef<TokenMove> moves, size_t ranks,
                                               int64_t pieces, int64_t length) {
  std::vector<std::vector<int64_t>> columns(ranks, std::vector<int64_t>(pieces, -1));
  for (const TokenMove& move : moves) {
    if (move.slot % length != 0) continue;  // its pieces stay -1
    for (int64_t done = 0; done < move.length; done += length) {
      columns[move.rank][(move.slot + done) / length] = move.column + done;
    }
  }
  return columns;
}

}  // namespace

void JoinShards(c10::ArrayRef<TokenMove> moves, const ShardGeometry& geometry, const void* shards,
                void* full) {
  const auto* from = static_cast<const std::byte*>(shards);
  auto* to = static_cast<std::byte*>(full);
  ForEachPiece(moves, geometry, [=](int64_t in_shards, int64_t in_full, int64_t bytes) {
    std::memcpy(to + in_full, from + in_shards, bytes);
  });
}

void SplitIntoShards(c10::ArrayRef<TokenMove> moves, const ShardGeometry& geometry,
                     const void* full, void* shards) {
  const auto* from = static_cast<const std::byte*>(full);
  auto* to = static_cast<std::byte*>(shards);
  ForEachPiece(moves, geometry, [=](int64_t in_shards, int64_t in_full, int64_t bytes) {
    std::memcpy(to + in_shards, from + in_full, bytes);
  });
}

std::optional<RegularPieces> AsRegularPieces(c10::ArrayRef<TokenMove> moves, at::IntArrayRef sizes,
                                             int64_t columns) {
  const int64_t slots = sizes.empty() ? 0 : sizes.front();
  const auto ranks = static_cast<int64_t>(sizes.size());
  if (slots == 0 || slots * ranks != columns) return std::nullopt;
  for (const int64_t size : sizes) {
    if (size != slots) return std::nullopt;
  }
  if (static_cast<int64_t>(moves.size()) > kMostPieces * ranks) return std::nullopt;
  int64_t length = 0;
  for (const TokenMove& move : moves) length = std::gcd(length, move.length);
  if (length == 0 || slots / length > kMostPieces) return std::nullopt;

  RegularPieces regular{slots / length, length, {}, {}};
  for (const auto& of : PieceColumns(moves, sizes.size(), regular.pieces, length)) {
    const int64_t step = regular.pieces == 1 ? 0 : of[1] - of[0];
    for (int64_t k = 0; k < regular.pieces; ++k) {
      if (of[k] < 0 || step < 0 || of[k] != of[0] + k * step) return std::nullopt;
    }
    regular.first.push_back(of[0]);
    regular.step.push_back(step);
  }
  return regular;
}

}  // namespace cpshard
