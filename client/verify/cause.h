// Why a stream differs as a whole, where one reason explains all of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/verify/reference.h"
#include "core/batch/batch.h"
#include "core/plan/plan.h"

namespace cpshard::verify {

// Codes are stable:
//   ranks_permuted      every part is ours, of another rank
//   another_partition   our columns, dealt out to the ranks by another rule
//   inverted            true where ours is false
//   shifted             what stands there is ours one column on, or one back
//   positions_of_row    positions count the row, not its documents
//   positions_of_slots  positions count the slots of the shard
//   padding             only columns without a token differ
//   document_ends       only the last tokens of documents differ
//   dtype, shape        the same numbers in the same order
//   not_cut             the whole stream
//   length              another number of slots
struct Cause {
  std::string code, text;
  friend bool operator==(const Cause&, const Cause&) = default;
};

// One stream of the ranks asked for: ours[k] and theirs[k] have the same dtype and shape.
struct StreamParts {
  const StreamPlan* stream = nullptr;
  std::vector<Tensor> ours, theirs;
};

// Of parts that belong to other ranks than ours: another order of the ranks, another partition of
// the same columns. A mask can look like both. ResourceExhausted: the pool.
absl::StatusOr<std::vector<Cause>> CausesInRanks(const Reference& reference,
                                                 const StreamParts& parts);

// Of the values that differ. ResourceExhausted: the pool.
absl::StatusOr<std::optional<Cause>> CauseInValues(const Reference& reference,
                                                   const StreamParts& parts);

// Of the part of `rank`, which has another number of elements, or one that our dtype does not hold.
// ResourceExhausted: the pool.
absl::StatusOr<Cause> CauseInLength(const Reference& reference, const StreamPlan& stream,
                                    int64_t rank, const Tensor& ours, const Tensor& theirs);

}  // namespace cpshard::verify
