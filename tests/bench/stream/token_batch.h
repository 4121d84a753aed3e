// What every row moves: one batch of input_ids, labels, position_ids (int64) and padding_mask
// (bool), all [rows, columns], and its shards for 4 ranks, round robin without padding. A batch and
// all its shards together have the same size: 25 bytes a token.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/batch/buffer.h"

namespace cpshard::bench {

inline constexpr int64_t kCpSize = 4;

struct TokenStream {
  const char* name;
  int64_t width;  // bytes of an element
};
inline constexpr std::array<TokenStream, 4> kTokenStreams = {
    {{"input_ids", 8}, {"labels", 8}, {"position_ids", 8}, {"padding_mask", 1}}};

struct TokenShape {
  int64_t rows = 0;
  int64_t columns = 0;  // a multiple of 256, so that everything begins at a multiple of 64 bytes

  int64_t tokens() const { return rows * columns; }
  int64_t bytes() const { return 25 * tokens(); }
  friend bool operator==(const TokenShape&, const TokenShape&) = default;
};

// The largest shape of at most `bytes`, but at least one of 256 columns: [8, S], and [1, S] below
// 1 MiB.
TokenShape ShapeFor(int64_t bytes);

// Memory that is there: written once, 64-byte aligned.
Buffer Resident(int64_t bytes);

// The streams one after the other, with values that differ from place to place.
Buffer MakeTokenBatch(const TokenShape& shape);

// One rank's part of one stream, [rows, columns / kCpSize]: of every row, chunks `rank` and
// 2 * kCpSize - 1 - rank of 2 * kCpSize. Calls put(source, size) run by run.
template <typename Put>
void ForEachRun(const TokenShape& shape, int64_t width, int64_t rank, const std::byte* stream,
                Put put) {
  const int64_t chunk = shape.columns / (2 * kCpSize) * width;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const std::byte* begin = stream + row * shape.columns * width;
    put(begin + rank * chunk, chunk);
    put(begin + (2 * kCpSize - 1 - rank) * chunk, chunk);
  }
}

// The shard pass: one libc copy of the batch into `shards`, rank after rank, each with its streams
// one after the other.
void ShardPass(const TokenShape& shape, const std::byte* batch, std::byte* shards);

// Ends the program when `shards` is not what ShardPass makes of `batch`. `who` is named.
void CheckShards(const std::string& who, const TokenShape& shape, const std::byte* batch,
                 const std::byte* shards);

}  // namespace cpshard::bench
