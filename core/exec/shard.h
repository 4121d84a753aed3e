// The verb "shard": a plan and a batch in, the shards of the ranks asked for out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/plan/batch_totals.h"
#include "core/plan/plan.h"
#include "core/plan/shard_layout.h"

namespace cpshard {

// How much of a stream a shard holds, and on which axis it was cut.
struct StreamCut {
  Extent extent = Extent::kLocal;
  int seq_axis = 1;  // of the shard's tensor; meaningless for kWhole
  friend bool operator==(const StreamCut&, const StreamCut&) = default;
};

StreamCut CutOf(const ShardPlan& plan, const StreamPlan& stream);

// What one rank receives.
struct RankShard {
  ShardLayout layout;
  Batch batch;
  std::vector<StreamCut> cuts;   // one per batch.tensors
  std::optional<RankLoad> load;  // of AddReport; absent too where no slots of ranks are counted
};

struct ShardResult {
  std::vector<RankShard> shards;  // in the order of the ranks asked for
  std::vector<Notice> notices;
  BatchTotals totals;    // of AddReport: of the whole batch, whichever ranks were asked for
  std::string executor;  // that made them; empty: a server that does not say
};

// Writes the outputs of `ranks` where the caller wants them. dests[s * ranks.size() + k] receives
// plan.streams[s] of ranks[k], OutputSpec(plan, stream, rank) bytes. nullptr = not wanted: a stream
// that every rank holds whole need only be written once, or not at all; a stream that is cut is
// wanted by all ranks (where a rank's part has no bytes, any pointer will do).
// Precondition: the plan is of this batch; ranks passed ResolveRanks.
absl::Status WriteShards(const ShardPlan& plan, const Batch& batch, absl::Span<const int64_t> ranks,
                         absl::Span<std::byte* const> dests, Executor& executor, BufferPool& pool);

// The shards of `ranks` in pooled memory: one block a rank, its streams 64-byte-aligned windows on
// it (a block that holds a whole shard is large enough for huge pages). The caller's own tensors
// share the batch's bytes; a literal or padded stream is one buffer for all ranks.
// Errors: ResourceExhausted.
absl::StatusOr<ShardResult> MakeShards(const ShardPlan& plan, const Batch& batch,
                                       absl::Span<const int64_t> ranks, Executor& executor,
                                       BufferPool& pool);

// Adds totals, loads and further notices to the shards of a batch. Apart from making them, for it
// reads labels, masks and positions once more: about 2 ms for a million tokens.
// Precondition: the shards are of this plan and batch.
void AddReport(const ShardPlan& plan, const Batch& batch, ShardResult& result);

// All of it, as the tools and tests do it in process: validates the batch against `limits`, plans,
// checks the size of what would come out, shards, reports. Empty `ranks` = all.
absl::StatusOr<ShardResult> ShardBatch(const Sharder& sharder, const Batch& batch,
                                       std::optional<int64_t> cp_size,
                                       absl::Span<const int64_t> ranks, const Limits& limits,
                                       Executor& executor, BufferPool& pool);

}  // namespace cpshard
