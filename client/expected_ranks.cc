#include "client/expected_ranks.h"

#include "absl/strings/str_cat.h"

namespace cpshard {

absl::Status ExpectedRanks::Check(const ShardResult& answer) const {
  const auto count = static_cast<int64_t>(answer.shards.size());
  const int64_t expected = ranks.empty() ? num_ranks : static_cast<int64_t>(ranks.size());
  if (count != expected) {
    return absl::InternalError(
        absl::StrCat("the server answers with ", count, " shards; ", expected, " were asked for"));
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t rank = ranks.empty() ? i : ranks[i];
    const int64_t got = answer.shards[i].layout.cp_rank;
    if (got == rank) continue;
    return absl::InternalError(absl::StrCat("shard ", i, " of the server's answer is that of rank ",
                                            got, "; rank ", rank, " was asked for"));
  }
  return absl::OkStatus();
}

}  // namespace cpshard
