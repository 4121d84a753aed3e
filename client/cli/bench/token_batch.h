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
  int64_t body_bytes() const;  // with the gaps between streams; what a batch counts on a stream
};

// Equal batches, each in memory of its own. No two tokens that stand near each other are equal.
class TokenBatches {
 public:
  TokenBatches() = default;

  // As many as take up `bytes`, at least one. ResourceExhausted: the pool.
  static absl::StatusOr<TokenBatches> Make(const TokenShape& shape, int64_t bytes,
                                           BufferPool& pool);

  // In turn: index + size() is the same as index.
  Batch At(int64_t index) const;
  int64_t size() const { return size_; }

 private:
  TokenShape shape_;
  Buffer bytes_;
  int64_t size_ = 0;
};

}  // namespace cpshard::bench
