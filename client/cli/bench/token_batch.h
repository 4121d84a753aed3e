// The batches of the benchmark.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"

namespace cpshard::bench {

// input_ids, labels, position_ids int64 and padding_mask bool.
inline constexpr int64_t kBytesPerToken = 25;

// The rows and columns of a batch of at least `bytes` bytes that needs no padding at `cp_size`:
// [4, S], S a multiple of 2 * cp_size.
struct TokenShape {
  int64_t rows = 4;
  int64_t columns = 0;

  static TokenShape For(double bytes, int64_t cp_size);
  int64_t tokens() const { return rows * columns; }
  int64_t bytes() const { return tokens() * kBytesPerToken; }
};

// No two tokens that stand near each other are equal. ResourceExhausted: the pool.
absl::StatusOr<Batch> MakeTokenBatch(const TokenShape& shape, BufferPool& pool);

}  // namespace cpshard::bench
