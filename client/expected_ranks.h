// The ranks whose shards a caller asked for, and of which executor, to hold an answer against.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/exec/executor_kind.h"
#include "core/exec/shard.h"

namespace cpshard {

struct ExpectedRanks {
  std::vector<int64_t> ranks;  // in the order asked for; empty: all
  int64_t num_ranks = 0;       // that there are
  ExecutorKind executor = ExecutorKind::kAuto;

  // Internal, with the numbers: fewer or more shards, or those of other ranks. FailedPrecondition:
  // as CheckExecutor.
  absl::Status Check(const ShardResult& answer) const;
};

// FailedPrecondition: `named` is what a server says that it sharded with, and not what was asked
// for: one that does not know executors takes no notice of the choice.
absl::Status CheckExecutor(ExecutorKind asked, absl::string_view named);

// FailedPrecondition: `asked` cannot be asked for of a server with these capabilities (of
// GetServerInfo): it would shard everything, on the CPU, before its answer says so.
absl::Status CheckKnowsExecutors(ExecutorKind asked, absl::Span<const std::string> capabilities);

}  // namespace cpshard
