// The digest of a batch while its bytes arrive (DigestOf, batch.h, is the one of a complete batch).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/plan/spec.h"

namespace cpshard {

// Takes tensors in ascending order of names, each with its bytes in any number of pieces.
class BatchDigest {
 public:
  BatchDigest();
  ~BatchDigest();

  void BeginTensor(const TensorSpec& spec);
  void AddBytes(absl::Span<const std::byte> bytes);
  uint64_t Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Indices of tensors in the order that the digest takes them.
std::vector<size_t> DigestOrder(absl::Span<const TensorSpec> tensors);

}  // namespace cpshard
