// Shards as views: what has to be sent so that every rank gets its own, as a list of pieces of
// shared memory. Long runs are windows on the batch, never copied; only what is computed, padded or
// short is written, once, into pooled memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/plan/plan.h"

namespace cpshard {

// From this length on a run of a stream is sent from where it lies. Measured: shorter ones cost
// more as slices of their own than the copy saves (docs/PERFORMANCE.md).
inline constexpr int64_t kMinViewBytes = 4096;

// A virtual buffer that holds the outputs of some ranks, each at a multiple of 64, whole streams
// first, then rank by rank in the order of the plan's streams. The bytes between are zero.
struct ShardBody {
  std::vector<Buffer> pieces;    // their concatenation is the buffer; none is empty; read only
  std::vector<int64_t> offsets;  // [s * ranks + k] of plan.streams[s] for ranks[k]; ranks share the
                                 // offset of a stream that they hold whole; 0 where it has no bytes
  int64_t size = 0;              // a multiple of 64
  int64_t copied_bytes = 0;      // of the outputs, what does not lie in the batch's own buffers
  std::string executor;          // that wrote them
};

// Where everything will lie, before anything is written: `offsets` and `size`, no pieces.
// Precondition: ranks passed ResolveRanks.
ShardBody PlaceShards(const ShardPlan& plan, absl::Span<const int64_t> ranks);

// The pieces. Views share the batch's buffers, which live as long as a piece does; what is written
// lies in one pooled block, what is derived in one more per stream while a piece views it.
// A stream whose copied runs (of all ranks asked for) are on average shorter than `min_view_bytes`
// is written whole, but one as sent is always viewed. What follows each other in memory is one
// run, and one piece.
// Precondition: the plan is of this batch; ranks passed ResolveRanks; min_view_bytes >= 1.
// ResourceExhausted: the pool.
absl::StatusOr<ShardBody> ViewShards(const ShardPlan& plan, const Batch& batch,
                                     absl::Span<const int64_t> ranks, Executor& executor,
                                     BufferPool& pool, int64_t min_view_bytes = kMinViewBytes);

}  // namespace cpshard
