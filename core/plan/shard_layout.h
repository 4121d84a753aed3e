// ShardLayout: the record of one rank's layout that travels with its shard. Its five optional
// fields are the contract's (section 1), names verbatim; the rest is what cpshard adds so that a
// reader of the record alone can gather, trim and explain.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/index_map.h"
#include "core/plan/plan.h"

namespace cpshard {

struct IntArray {
  std::vector<int64_t> shape;
  std::vector<int64_t> values;  // row-major
  friend bool operator==(const IntArray&, const IntArray&) = default;
};

// An array that the records of several ranks share, or none: an optional whose copies are cheap.
class SharedIntArray {
 public:
  SharedIntArray() = default;
  template <std::convertible_to<std::optional<IntArray>> From>
  SharedIntArray(From&& from) {  // NOLINT(runtime/explicit)
    std::optional<IntArray> array = std::forward<From>(from);
    if (array) array_ = std::make_shared<const IntArray>(*std::move(array));
  }

  explicit operator bool() const { return array_ != nullptr; }
  const IntArray& operator*() const { return *array_; }
  const IntArray* operator->() const { return array_.get(); }
  void reset() { array_.reset(); }
  operator std::optional<IntArray>() const {  // NOLINT(runtime/explicit)
    return array_ ? std::optional(*array_) : std::nullopt;
  }

  friend bool operator==(const SharedIntArray& a, const SharedIntArray& b) {
    return a.array_ == b.array_ || (a && b && *a == *b);
  }

 private:
  std::shared_ptr<const IntArray> array_;
};

struct ShardLayout {
  std::optional<IntArray> local_token_global_indices;
  std::optional<int64_t> original_seq_len;
  std::optional<int64_t> padded_seq_len;
  std::optional<IntArray> input_row_shape;      // values {B, S}
  SharedIntArray input_token_stream_positions;  // [B, S]

  int64_t cp_rank = 0;
  int64_t cp_size = 1;  // ranks that hold the batch; 1 without a mesh too
  uint64_t batch_digest = 0;
  // Local slot <- padded column, also where the contract reports no layout (then the five fields
  // above are absent); several chunks: over the flattened [C, ...] stream, chunk c's columns offset
  // by c * padded_len. Empty where nothing is cut.
  std::vector<Run> runs;
  friend bool operator==(const ShardLayout&, const ShardLayout&) = default;
};

// Makes the records of the ranks of a plan, each a projection of it. What does not depend on the
// rank is made once, when it is first asked for: the positions have an element for every token.
// Not thread-safe; the plan must outlive the object.
class LayoutRecords {
 public:
  LayoutRecords(const ShardPlan& plan, uint64_t batch_digest)
      : plan_(&plan), batch_digest_(batch_digest) {}

  // Precondition: 0 <= rank < plan.num_ranks().
  ShardLayout Of(int64_t rank);

 private:
  void AddReport(int64_t rank, ShardLayout* record);

  const ShardPlan* plan_;
  uint64_t batch_digest_;
  SharedIntArray positions_;
};

// The record of one rank alone.
ShardLayout LayoutFor(const ShardPlan& plan, int64_t rank, uint64_t batch_digest);

}  // namespace cpshard
