// Batches and shards written down in tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/exec/shard.h"
#include "core/plan/layouts.h"
#include "tests/exec/encode.h"

namespace cpshard {

// A tensor whose elements, in memory order, have these values.
inline Tensor TensorOf(std::string name, DType dtype, std::vector<int64_t> dims,
                       const std::vector<double>& values) {
  auto owner = std::make_shared<std::vector<std::byte>>(EncodeAll(dtype, values));
  std::byte* data = owner->data();
  const size_t size = owner->size();
  return {{std::move(name), dtype, std::move(dims)}, Buffer(std::move(owner), data, size)};
}

// [rows, columns] with 1000 * row + column (+ first), so that a misplaced token shows its origin.
inline Tensor Tokens(std::string name, int64_t rows, int64_t columns, DType dtype = DType::kI64,
                     int64_t first = 0) {
  std::vector<double> values;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      values.push_back(static_cast<double>(1000 * row + column + first));
    }
  }
  return TensorOf(std::move(name), dtype, {rows, columns}, values);
}

inline std::vector<std::byte> BytesOf(const Tensor& tensor) {
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

// The tensor has this shape and these values.
inline void ExpectTensor(const Tensor* tensor, DType dtype, const std::vector<int64_t>& dims,
                         const std::vector<double>& values) {
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->spec.dtype, dtype) << tensor->spec.name;
  EXPECT_EQ(tensor->spec.dims, dims) << tensor->spec.name;
  EXPECT_EQ(BytesOf(*tensor), EncodeAll(dtype, values)) << tensor->spec.name;
}

// What the exec tests share: an executor and a pool that must be empty at the end.
class ShardTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(pool_.stats().buffers_out, 0u);
    EXPECT_EQ(pool_.stats().bytes_out, 0u);
  }

  absl::StatusOr<ShardResult> Shard(const Sharder& sharder, const Batch& batch, int64_t cp_size,
                                    std::vector<int64_t> ranks = {}, const Limits& limits = {}) {
    return ShardBatch(sharder, batch, cp_size, ranks, limits, *executor_, pool_);
  }

  // The shards of a batch that must not be refused.
  std::vector<RankShard> ShardsOf(const Sharder& sharder, const Batch& batch, int64_t cp_size) {
    absl::StatusOr<ShardResult> result = Shard(sharder, batch, cp_size);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? std::move(result->shards) : std::vector<RankShard>(cp_size);
  }

  BufferPool pool_;
  const std::unique_ptr<Executor> executor_ = MakeCpuExecutor();
};

}  // namespace cpshard
