// Backends `shard_token_tensor`, `gather_token_tensor` and `gather_sequence`: the token verbs and
// the sequence gathers (contract sections 9, 4.9, 4.18), called as library functions, all ranks in
// this process.
#pragma once

#include "absl/status/statusor.h"
#include "tests/conformance/backends.h"

namespace cpshard::conformance {

// args: layout and map (layout_arg.h), seq_dim, fill, trim (of the gather alone), grad (its keys
// are not compared). The batch holds `t`, the whole tensor, or for a gather `local`, one per rank
// (or `t` of one rank), and perhaps `weight`, of which only gradients are made. Answers `result`
// per rank.
absl::StatusOr<LibraryCall> ReadShardToken(const Input& input, Args& args);
absl::StatusOr<LibraryCall> ReadGatherToken(const Input& input, Args& args);

// args: op, dim (of some), history (of the halo); the batch holds `local` as above. Answers
// `gathered` per rank.
absl::StatusOr<LibraryCall> ReadGatherSequence(const Input& input, Args& args);

}  // namespace cpshard::conformance
