// Batches written down in tests.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/batch/batch.h"

namespace cpshard {

// A buffer that owns a copy of `bytes`.
inline Buffer BufferOf(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  std::byte* data = owner->data();
  const size_t size = owner->size();
  return Buffer(std::move(owner), data, size);
}

// A tensor with the values as they lie in memory.
template <typename T>
Tensor TensorOf(std::string name, DType dtype, std::vector<int64_t> dims,
                const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {{std::move(name), dtype, std::move(dims)}, BufferOf(std::move(bytes))};
}

}  // namespace cpshard
