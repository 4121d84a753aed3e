// A batch of one row, [1, 8]: ids 0 ... 7 and the labels that belong to them.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"

inline cpshard::Tensor Row(const char* name, const std::vector<int64_t>& values,
                           cpshard::BufferPool& pool) {
  const auto columns = static_cast<int64_t>(values.size());
  cpshard::Buffer buffer = pool.Allocate(values.size() * sizeof(int64_t)).value();
  std::memcpy(buffer.data(), values.data(), buffer.size());
  return {{name, cpshard::DType::kI64, {1, columns}}, buffer};
}

inline cpshard::Batch Tokens(cpshard::BufferPool& pool) {
  cpshard::Batch batch;
  batch.tensors.push_back(Row("input_ids", {0, 1, 2, 3, 4, 5, 6, 7}, pool));
  batch.tensors.push_back(Row("labels", {1, 2, 3, 4, 5, 6, 7, -100}, pool));
  return batch;
}
