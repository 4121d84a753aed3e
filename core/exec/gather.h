// The verb "gather": the shards of one stream back into one tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/exec/shard.h"
#include "core/plan/shard_layout.h"

namespace cpshard {

struct GatherOptions {
  int64_t seq_axis = 1;        // negative counts from the end
  bool trim = false;           // back to the caller's coordinates
  std::optional<Number> fill;  // what stands where the caller's token was dropped
};

// Puts `parts` (parts[i] is the stream as the rank of layouts[i] holds it) back in the order of the
// padded columns, pads included; with `trim` in the caller's shape (contract 9.3). One layout per
// rank, any order; uneven shards are fine.
// Stacked chunks, [C, L, ...] with seq_axis on L, are known by layouts over the flattened C * L
// slots that report nothing (ShardLayout::runs); they come back as [C, T_c, ...], chunk by chunk in
// padded order, and there is nothing to trim them to.
// FailedPrecondition: a rank is missing, or layouts disagree (cp_size, digest, padded length) or do
// not belong to the tensors, or there is nothing to trim to.
// InvalidArgument: dtypes or shapes of the parts disagree, an axis that does not exist, `fill`
// missing where positions need it.
absl::StatusOr<Tensor> Gather(const std::vector<ShardLayout>& layouts,
                              const std::vector<Tensor>& parts, const GatherOptions& options,
                              Executor& executor, BufferPool& pool);

// A stream that every rank holds whole, as it is. FailedPrecondition: the ranks have not the same
// bytes. Precondition: `parts` is not empty.
absl::StatusOr<Tensor> HeldWhole(const std::vector<Tensor>& parts);

// The shards of one batch, put back: a stream that every rank holds whole comes back as it is. The
// axis is the one that the shards name; options.seq_axis does not count.
// NotFound: no shard has the stream. Others as Gather.
absl::StatusOr<Tensor> GatherStream(const std::vector<RankShard>& shards, absl::string_view name,
                                    GatherOptions options, Executor& executor, BufferPool& pool);

}  // namespace cpshard
