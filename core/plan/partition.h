// Closed-form partitions: which padded columns each rank holds (contract 2.7). One IndexMap per
// rank, local slot <- padded column.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/plan/index_map.h"

namespace cpshard {

// The smallest multiple of `divisor` that is >= length. Precondition: length >= 0, divisor >= 1.
// InvalidArgument when it is beyond int64; `what` names the divisor in the message.
absl::StatusOr<int64_t> RoundUp(int64_t length, int64_t divisor, absl::string_view what);

// a * b. InvalidArgument when it is beyond int64, naming both numbers and `what`.
absl::StatusOr<int64_t> CheckedMultiply(int64_t a, int64_t b, absl::string_view what);

// Every rank holds all columns.
std::vector<IndexMap> WholePartition(int64_t padded_len, int64_t ranks);

// Rank r holds columns r*L ... (r+1)*L-1, L = padded_len / cp_size.
// InvalidArgument: padded_len is not divisible by cp_size.
absl::StatusOr<std::vector<IndexMap>> ContiguousPartition(int64_t padded_len, int64_t cp_size);

// Rank r holds chunk r, then chunk 2*cp_size-1-r, of 2*cp_size equal chunks (head and tail).
// InvalidArgument: padded_len is not divisible by 2 * cp_size.
absl::StatusOr<std::vector<IndexMap>> RoundRobinPartition(int64_t padded_len, int64_t cp_size);

// Head and tail chunk of every document of a packed stream (contract section 6): documents lie
// between consecutive `boundaries`, and of the 2*cp_size equal chunks of each the rank r holds
// chunk r, then chunk 2*cp_size-1-r, documents in order. Of one document it is the round robin map.
// Only on the formula's precondition (D5). InvalidArgument, naming the document and the numbers:
// fewer than two boundaries; the first is not 0, the last is not total_tokens, or they descend; a
// document's length is not divisible by 2 * cp_size; total_tokens is 0 or beyond int32.
// Cost: documents * ranks.
absl::StatusOr<std::vector<IndexMap>> TePartition(absl::Span<const int64_t> boundaries,
                                                  int64_t total_tokens, int64_t cp_size);

}  // namespace cpshard
