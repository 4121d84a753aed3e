// The ranks whose shards a caller asked for, to hold an answer against.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/exec/shard.h"

namespace cpshard {

struct ExpectedRanks {
  std::vector<int64_t> ranks;  // in the order asked for; empty: all
  int64_t num_ranks = 0;       // that there are

  // Internal, with the numbers: fewer or more shards, or those of other ranks.
  absl::Status Check(const ShardResult& answer) const;
};

}  // namespace cpshard
