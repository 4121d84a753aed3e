// Backends `magi_partition` and `magi_layout`: the dispatch of contract 7.4 and the report of 7.5,
// called as library functions.
#pragma once

#include "absl/status/statusor.h"
#include "tests/conformance/backends.h"

namespace cpshard::conformance {

// args: doc_lens, chunk_size_arg, true_indices (whether `slot_indices(true)` is among the outputs).
// Answers chunk_size, pad_size, num_chunks, chunks_of_rank.N and the clamped positions, per rank.
// InvalidArgument: another type, numbers too large to expand. What the solver refuses is an answer.
absl::StatusOr<LibraryCall> ReadMagiPartition(const Input& input, Args& args);

// args: local_indices, a list per rank, [L] or [1, L]; the batch holds `input_ids`. Answers the
// layout that those indices report, per rank. InvalidArgument: another type or shape.
absl::StatusOr<LibraryCall> ReadMagiLayout(const Input& input, Args& args);

}  // namespace cpshard::conformance
