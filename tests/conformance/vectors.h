// Files beside the cases: magi_vectors.json, dispatch partitions of the solver with explicit masks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/conformance/run.h"

namespace cpshard::conformance {

using Lists = std::vector<std::vector<int64_t>>;

struct DispatchVector {
  std::string name;
  Lists q_ranges, k_ranges;  // [begin, end) each
  std::vector<std::string> mask_types;
  int64_t total_seqlen = 0, chunk_size = 0, cp_size = 0;
  bool uneven = false;         // the last chunk is what is left, nothing is padded
  std::vector<int64_t> areas;  // per chunk
  Lists partitions;            // chunks of each rank
  std::vector<int64_t> loads;  // area of each rank
  std::optional<std::vector<int64_t>> split_sizes;  // columns of each rank, of an uneven one
};

// InvalidArgument: not a list of vectors; a field is missing, of another type or out of range; the
// message names vector and field.
absl::StatusOr<std::vector<DispatchVector>> ReadVectors(absl::string_view text);

// Deals the areas out and compares chunks, loads and columns of every rank. Of masks that are plain
// causal documents, padding behind them, also the areas, and the dispatch as a whole.
Outcome RunVector(const DispatchVector& vector);

}  // namespace cpshard::conformance
