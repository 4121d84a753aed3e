// The demo's proof: shards against the restated contract, and the gathered batch against what was
// sent.
#pragma once

#include <string>
#include <vector>

#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/exec/shard.h"
#include "core/oracle/restatement.h"

namespace cpshard::demo {

// The first way in which the shards of all ranks differ from the restatement, in words with stream,
// rank and index; empty = equal in every element.
std::string DifferenceFromContract(const Batch& batch, const oracle::Options& options,
                                   int64_t cp_size, const std::vector<RankShard>& shards);

// ... of one rank, which the words do not name.
std::string DifferenceOfShard(const Batch& batch, const oracle::Options& options, int64_t cp_size,
                              int64_t rank, const RankShard& shard);

// How the stream of that name, gathered and trimmed, differs from `expected`; empty = equal.
std::string DifferenceAfterGather(const Tensor& expected, const std::vector<RankShard>& shards,
                                  Executor& executor, BufferPool& pool);

}  // namespace cpshard::demo
