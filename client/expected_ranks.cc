#include "client/expected_ranks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cpshard {

namespace {

absl::Status IsOlder(ExecutorKind asked) {
  return absl::FailedPreconditionError(
      absl::StrCat("executor ", ToString(asked),
                   " was asked for, and the server does not say what it shards with: it is older "
                   "than this choice; start a newer one, or ask for auto"));
}

}  // namespace

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
  return CheckExecutor(executor, answer.executor);
}

absl::Status CheckExecutor(ExecutorKind asked, absl::string_view named) {
  if (asked == ExecutorKind::kAuto || absl::StartsWith(named, ToString(asked))) {
    return absl::OkStatus();
  }
  if (named.empty()) {
    if (asked == ExecutorKind::kCpu) return absl::OkStatus();  // it has no other one
    return IsOlder(asked);
  }
  return absl::FailedPreconditionError(absl::StrCat("executor ", ToString(asked),
                                                    " was asked for, and the server has sharded "
                                                    "with ",
                                                    named, "; ask for auto, or another server"));
}

absl::Status CheckKnowsExecutors(ExecutorKind asked, absl::Span<const std::string> capabilities) {
  const bool knows =
      std::find(capabilities.begin(), capabilities.end(), "executors") != capabilities.end();
  return knows || asked != ExecutorKind::kCuda ? absl::OkStatus() : IsOlder(asked);
}

}  // namespace cpshard
