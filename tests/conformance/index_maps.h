// Backends `index_map` and `te_index_map`: the closed-form partitions (contract 2.7) and the head
// and tail chunks of packed documents (section 6), called as library functions.
#pragma once

#include "absl/status/statusor.h"
#include "tests/conformance/backends.h"

namespace cpshard::conformance {

// args: padded_seq_len, map (identity, contiguous, round_robin). Answers a stream `indices`, i64
// [L], per rank. InvalidArgument: another map, numbers too large to expand.
absl::StatusOr<LibraryCall> ReadIndexMap(const Input& input, Args& args);

// args: cu_seqlens_padded (list of integers), total_tokens. Answers `indices`, i32 [L], per rank.
// InvalidArgument: another type, numbers too large to expand. What the formula refuses is an
// answer.
absl::StatusOr<LibraryCall> ReadTeIndexMap(const Input& input, Args& args);

}  // namespace cpshard::conformance
