// ShardLayout: the record of one rank's layout that travels with its shard. Its five optional
// fields are the contract's (section 1), names verbatim; the rest is what cpshard adds so that a
// reader of the record alone can gather, trim and explain.
#pragma once

#include <cstdint>
#include <optional>
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

struct ShardLayout {
  std::optional<IntArray> local_token_global_indices;
  std::optional<int64_t> original_seq_len;
  std::optional<int64_t> padded_seq_len;
  std::optional<IntArray> input_row_shape;               // values {B, S}
  std::optional<IntArray> input_token_stream_positions;  // [B, S]

  int64_t cp_rank = 0;
  int64_t cp_size = 1;  // ranks that hold the batch; 1 without a mesh too
  uint64_t batch_digest = 0;
  // Local slot <- padded column, also where the contract reports no layout (then the five fields
  // above are absent); several chunks: over the flattened [C, ...] stream, chunk c's columns offset
  // by c * padded_len. Empty where nothing is cut.
  std::vector<Run> runs;
  friend bool operator==(const ShardLayout&, const ShardLayout&) = default;
};

// The record of `rank` (a projection of the plan). Precondition: 0 <= rank < plan.num_ranks().
ShardLayout LayoutFor(const ShardPlan& plan, int64_t rank, uint64_t batch_digest);

}  // namespace cpshard
