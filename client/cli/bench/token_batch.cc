#include "client/cli/bench/token_batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/plan/status_macros.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kVocabulary = 128'003;
constexpr int64_t kIntStreams = 3;

int64_t IntBytes(const TokenShape& shape) {
  return AlignUp(shape.tokens() * static_cast<int64_t>(sizeof(int64_t)));
}

// From one batch to the next.
int64_t Stride(const TokenShape& shape) { return AlignUp(shape.body_bytes()); }

void FillInts(std::byte* dest, const TokenShape& shape, int64_t first, int64_t period) {
  for (int64_t i = 0; i < shape.tokens(); ++i) {
    const int64_t value = (first + i) % period;
    std::memcpy(dest + i * sizeof value, &value, sizeof value);
  }
}

void Fill(std::byte* dest, const TokenShape& shape) {
  const int64_t step = IntBytes(shape);
  FillInts(dest, shape, 0, kVocabulary);
  FillInts(dest + step, shape, 1, kVocabulary);
  FillInts(dest + 2 * step, shape, 0, shape.columns);
  std::memset(dest + kIntStreams * step, 0, shape.tokens());
}

}  // namespace

TokenShape TokenShape::For(double bytes, int64_t cp_size) {
  TokenShape shape;
  const double step = static_cast<double>(2 * cp_size);
  const double columns = bytes / static_cast<double>(kBytesPerToken * shape.rows);
  shape.columns = static_cast<int64_t>(std::ceil(columns / step) * step);
  return shape;
}

int64_t TokenShape::body_bytes() const { return kIntStreams * IntBytes(*this) + tokens(); }

absl::StatusOr<TokenBatches> TokenBatches::Make(const TokenShape& shape, int64_t bytes,
                                                BufferPool& pool) {
  TokenBatches batches;
  const int64_t stride = Stride(shape);
  batches.shape_ = shape;
  batches.size_ = std::max<int64_t>((bytes + stride - 1) / stride, 1);
  CPSHARD_ASSIGN_OR_RETURN(batches.bytes_, pool.Allocate(batches.size_ * stride));
  std::byte* const first = batches.bytes_.data();
  Fill(first, shape);
  for (int64_t i = 1; i < batches.size_; ++i) {
    std::memcpy(first + i * stride, first, shape.body_bytes());
  }
  return batches;
}

Batch TokenBatches::At(int64_t index) const {
  Batch batch;
  int64_t offset = index % size_ * Stride(shape_);
  const auto add = [&](const char* name, DType dtype) {
    const int64_t size = shape_.tokens() * static_cast<int64_t>(ItemSize(dtype));
    batch.tensors.push_back(
        {{name, dtype, {shape_.rows, shape_.columns}}, bytes_.Slice(offset, size)});
    offset += AlignUp(size);
  };
  add("input_ids", DType::kI64);
  add("labels", DType::kI64);
  add("position_ids", DType::kI64);
  add("padding_mask", DType::kBool);
  return batch;
}

}  // namespace cpshard::bench
