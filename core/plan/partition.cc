#include "core/plan/partition.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::Status CheckBoundaries(absl::Span<const int64_t> boundaries, int64_t total_tokens,
                             int64_t pieces) {
  constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
  if (boundaries.size() < 2 || boundaries.front() != 0 || boundaries.back() != total_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        boundaries.size(), " boundaries of documents",
        boundaries.empty()
            ? ""
            : absl::StrCat(", from ", boundaries.front(), " to ", boundaries.back(), ","),
        " do not span ", total_tokens,
        " tokens; at least two are needed, the first 0 and the "
        "last the number of tokens"));
  }
  if (total_tokens < 1 || total_tokens > kInt32Max) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_tokens is ", total_tokens, "; it must be 1 ... ", kInt32Max));
  }
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    const int64_t begin = boundaries[i], end = boundaries[i + 1];
    // From 0 on and not descending, so the difference does not overflow.
    if (end >= begin && (end - begin) % pieces == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("document ", i, " from ", begin, " to ", end,
                     end < begin ? " ends before it begins; boundaries ascend"
                                 : absl::StrCat(" has a length that is no multiple of 2 * cp_size"
                                                " = ",
                                                pieces, "; pad it to one")));
  }
  return absl::OkStatus();
}

}  // namespace

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

absl::StatusOr<std::vector<IndexMap>> TePartition(absl::Span<const int64_t> boundaries,
                                                  int64_t total_tokens, int64_t cp_size) {
  CPSHARD_RETURN_IF_ERROR(CheckBoundaries(boundaries, total_tokens, 2 * cp_size));
  const size_t documents = boundaries.size() - 1;
  std::vector<IndexMap> partition(cp_size);
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    IndexMap& local = partition[rank];
    local.Reserve(std::min(2 * documents, static_cast<size_t>(total_tokens / cp_size)));
    for (size_t i = 0; i < documents; ++i) {
      const int64_t chunk = (boundaries[i + 1] - boundaries[i]) / (2 * cp_size);
      local.Append({boundaries[i] + rank * chunk, chunk});
      local.Append({boundaries[i] + (2 * cp_size - 1 - rank) * chunk, chunk});
    }
  }
  return partition;
}

}  // namespace cpshard
