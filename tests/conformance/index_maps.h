// Backend `index_map`: the closed-form partitions (contract 2.7), called as library functions.
#pragma once

#include "absl/status/statusor.h"
#include "tests/conformance/backends.h"

namespace cpshard::conformance {

// args: padded_seq_len, map (identity, contiguous, round_robin). Answers a stream `indices`, i64
// [L], per rank. InvalidArgument: another map, numbers too large to expand.
absl::StatusOr<LibraryCall> ReadIndexMap(const Input& input, Args& args);

}  // namespace cpshard::conformance
