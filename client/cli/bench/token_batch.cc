#include "client/cli/bench/token_batch.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/plan/status_macros.h"

namespace cpshard::bench {
namespace {

absl::Status AddInts(const char* name, const TokenShape& shape, int64_t first, int64_t period,
                     BufferPool& pool, Batch& batch) {
  CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(shape.tokens() * sizeof(int64_t)));
  for (int64_t i = 0; i < shape.tokens(); ++i) {
    const int64_t value = (first + i) % period;
    std::memcpy(buffer.data() + i * sizeof value, &value, sizeof value);
  }
  batch.tensors.push_back({{name, DType::kI64, {shape.rows, shape.columns}}, std::move(buffer)});
  return absl::OkStatus();
}

}  // namespace

TokenShape TokenShape::For(double bytes, int64_t cp_size) {
  TokenShape shape;
  const double step = static_cast<double>(2 * cp_size);
  const double columns = bytes / static_cast<double>(kBytesPerToken * shape.rows);
  shape.columns = static_cast<int64_t>(std::ceil(columns / step) * step);
  return shape;
}

absl::StatusOr<Batch> MakeTokenBatch(const TokenShape& shape, BufferPool& pool) {
  constexpr int64_t kVocabulary = 128'003;
  Batch batch;
  CPSHARD_RETURN_IF_ERROR(AddInts("input_ids", shape, 0, kVocabulary, pool, batch));
  CPSHARD_RETURN_IF_ERROR(AddInts("labels", shape, 1, kVocabulary, pool, batch));
  CPSHARD_RETURN_IF_ERROR(AddInts("position_ids", shape, 0, shape.columns, pool, batch));
  CPSHARD_ASSIGN_OR_RETURN(Buffer mask, pool.Allocate(shape.tokens()));
  std::memset(mask.data(), 0, mask.size());
  batch.tensors.push_back(
      {{"padding_mask", DType::kBool, {shape.rows, shape.columns}}, std::move(mask)});
  return batch;
}

}  // namespace cpshard::bench
