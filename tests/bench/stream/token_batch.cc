#include "tests/bench/stream/token_batch.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/bench/stream/process.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kColumnStep = 256;

// Tokens look random; positions count along each row, which makes it one document; the last 16th of
// a row is padding.
int64_t IntOf(const TokenShape& shape, const TokenStream& stream, int64_t token) {
  if (std::strcmp(stream.name, "position_ids") == 0) return token % shape.columns;
  return (token * 2654435761 + stream.name[0]) % 50257;
}

void Fill(const TokenShape& shape, const TokenStream& stream, std::byte* dest) {
  for (int64_t i = 0; i < shape.tokens(); ++i) {
    if (stream.width == 8) {
      const int64_t value = IntOf(shape, stream, i);
      std::memcpy(dest + 8 * i, &value, 8);
    } else {
      dest[i] = std::byte(i % shape.columns >= shape.columns / 16 * 15);
    }
  }
}

}  // namespace

TokenShape ShapeFor(int64_t bytes) {
  const int64_t rows = bytes < (int64_t{1} << 20) ? 1 : 8;
  const int64_t columns = bytes / 25 / rows / kColumnStep * kColumnStep;
  return {rows, std::max(columns, kColumnStep)};
}

Buffer Resident(int64_t bytes) {
  static BufferPool& pool = *new BufferPool({.max_bytes = size_t{1} << 40, .max_idle_bytes = 0});
  absl::StatusOr<Buffer> buffer = pool.Allocate(bytes);
  if (!buffer.ok()) Fail(buffer.status().ToString());
  std::memset(buffer->data(), 0, buffer->size());
  return *std::move(buffer);
}

Buffer MakeTokenBatch(const TokenShape& shape) {
  Buffer batch = Resident(shape.bytes());
  std::byte* dest = batch.data();
  for (const TokenStream& stream : kTokenStreams) {
    Fill(shape, stream, dest);
    dest += shape.tokens() * stream.width;
  }
  return batch;
}

void ShardPass(const TokenShape& shape, const std::byte* batch, std::byte* shards) {
  for (int64_t rank = 0; rank < kCpSize; ++rank) {
    const std::byte* source = batch;
    for (const TokenStream& stream : kTokenStreams) {
      ForEachRun(shape, stream.width, rank, source, [&](const std::byte* run, int64_t size) {
        std::memcpy(shards, run, size);
        shards += size;
      });
      source += shape.tokens() * stream.width;
    }
  }
}

void CheckShards(const std::string& who, const TokenShape& shape, const std::byte* batch,
                 const std::byte* shards) {
  const Buffer expected = Resident(shape.bytes());
  ShardPass(shape, batch, expected.data());
  if (std::memcmp(expected.data(), shards, expected.size()) == 0) return;
  Fail(absl::StrCat(who, " answered wrong shards for a batch of [", shape.rows, ", ", shape.columns,
                    "]"));
}

}  // namespace cpshard::bench
