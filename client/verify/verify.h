// Shards that somebody else made of a batch, compared with ours: stream by stream, and of what
// differs the first element, in the words of tokens, ranks and documents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/verify/comparison.h"
#include "client/verify/edge_probe.h"
#include "core/batch/batch.h"
#include "core/exec/executor.h"

namespace cpshard::verify {

struct Request {
  std::optional<int64_t> cp_size;    // absent: no mesh
  std::vector<int64_t> ranks;        // to compare; empty = all
  std::string dir;                   // rank0.safetensors, ...
  std::vector<std::string> streams;  // to compare; empty = all of ours
};

struct Findings {
  int64_t cp_size = 1;
  std::vector<int64_t> ranks;    // compared
  std::vector<int64_t> surplus;  // files of ranks that the group has not: it is another group
  std::vector<StreamFinding> streams;
  std::vector<TensorSpec> extra;     // theirs alone: not compared
  std::vector<std::string> scalars;  // ours alone: files of tensors have none
  std::string documents_from;        // Documents::from
  EdgeProbe edges;

  // A stream that is not equal or not there, other ranks, or a label at an edge that is wrong and
  // not so in the batch.
  bool different() const;
};

// Every element is compared by its bytes. Memory: one stream of all ranks asked for, twice.
// Errors: those of ShardBatch (core/exec/shard.h) for the batch; NotFound, InvalidArgument: of the
// files (RankFolder::Open), and a stream asked for that we do not make, with the names of all.
absl::StatusOr<Findings> Verify(const Batch& batch, const Sharder& sharder, const Request& request,
                                Executor& executor, BufferPool& pool);

}  // namespace cpshard::verify
