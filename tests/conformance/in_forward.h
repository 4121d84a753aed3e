// Backends `in_forward_round_robin` and `in_forward_contiguous`: one tensor padded and cut inside a
// model's forward pass (contract 4.6), called as a library function.
#pragma once

#include "absl/status/statusor.h"
#include "tests/conformance/backends.h"

namespace cpshard::conformance {

// args: seq_dim, pad_value, pad_multiple (of contiguous alone), grad (its keys are not compared);
// the batch holds one entry, `tensor`. Answers per rank `local`, `local_indices` i64 [L] and the
// scalar `padded_seq_len`, no layout. InvalidArgument: other types, another batch, numbers too
// large to expand. What the product refuses is an answer.
absl::StatusOr<LibraryCall> ReadInForwardRoundRobin(const Input& input, Args& args);
absl::StatusOr<LibraryCall> ReadInForwardContiguous(const Input& input, Args& args);

}  // namespace cpshard::conformance
