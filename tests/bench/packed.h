// Batches of packed documents: layout thd.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/spec.h"
#include "core/plan/value_view.h"

namespace cpshard::bench {

// One row of `tokens` tokens: input_ids, labels, position_ids (int64) and the lengths of its
// documents. Those are random, from 0.2 to 1.8 times the mean, padded to a multiple of 2 * cp_size;
// half of them are really shorter. Fixed seed.
class PackedBatch {
 public:
  // Precondition: tokens is a multiple of 2 * cp_size, and a document's mean at least 10 of those.
  PackedBatch(int64_t tokens, int64_t documents, int64_t cp_size);

  const BatchSpec& spec() const { return spec_; }
  PlanValues values() const;  // views of this object
  const std::vector<int64_t>& padded() const { return padded_; }

 private:
  BatchSpec spec_;
  std::vector<int64_t> real_, padded_;
};

}  // namespace cpshard::bench
