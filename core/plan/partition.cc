#include "core/plan/partition.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard {

absl::StatusOr<int64_t> CheckedMultiply(int64_t a, int64_t b, absl::string_view what) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is beyond 64 bits: ", a, " * ", b));
  }
  return product;
}

absl::StatusOr<int64_t> RoundUp(int64_t length, int64_t divisor, absl::string_view what) {
  const int64_t rest = length % divisor;
  if (rest == 0) return length;
  int64_t padded;
  if (__builtin_add_overflow(length, divisor - rest, &padded)) {
    return absl::InvalidArgumentError(absl::StrCat("length ", length, " padded to a multiple of ",
                                                   what, " = ", divisor, " is beyond 64 bits"));
  }
  return padded;
}

std::vector<IndexMap> WholePartition(int64_t padded_len, int64_t ranks) {
  return std::vector<IndexMap>(ranks, IndexMap::Identity(padded_len));
}

absl::StatusOr<std::vector<IndexMap>> ContiguousPartition(int64_t padded_len, int64_t cp_size) {
  if (padded_len % cp_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("padded length ", padded_len, " is not divisible by cp_size ", cp_size));
  }
  const int64_t local_len = padded_len / cp_size;
  std::vector<IndexMap> partition(cp_size);
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    partition[rank].Append({rank * local_len, local_len});
  }
  return partition;
}

absl::StatusOr<std::vector<IndexMap>> RoundRobinPartition(int64_t padded_len, int64_t cp_size) {
  if (padded_len % (2 * cp_size) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "padded length ", padded_len, " is not divisible by 2 * cp_size = ", 2 * cp_size));
  }
  const int64_t chunk = padded_len / (2 * cp_size);
  std::vector<IndexMap> partition(cp_size);
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    partition[rank].Append({rank * chunk, chunk});
    partition[rank].Append({(2 * cp_size - 1 - rank) * chunk, chunk});
  }
  return partition;
}

}  // namespace cpshard
