// From a plan to tasks: what the executor has to do for the outputs of some ranks.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/batch/buffer.h"
#include "core/exec/task.h"
#include "core/plan/plan.h"

namespace cpshard {

// Collects the tasks of one plan, stream by stream. The object owns what is derived on the way, so
// it must live until the tasks are done; plan, batch, ranks and pool must outlive it.
class Lowering {
 public:
  Lowering(const ShardPlan& plan, const Batch& batch, absl::Span<const int64_t> ranks,
           BufferPool& pool)
      : plan_(plan), batch_(batch), ranks_(ranks), pool_(pool) {}

  // dests[k] receives the stream as ranks[k] gets it; nullptr as in WriteShards.
  // Internal: the batch is not the plan's. ResourceExhausted: the pool.
  absl::Status Add(const StreamPlan& stream, absl::Span<std::byte* const> dests);

  absl::Span<const Task> tasks() const { return tasks_; }

 private:
  using RowMoves = std::shared_ptr<const std::vector<Moves>>;  // one entry, or one per row

  absl::StatusOr<const Tensor*> Find(const ViewOf& view) const;
  void AddCut(const StreamPlan& stream, absl::Span<std::byte* const> dests, CutTask task);
  absl::Status AddAsSent(const StreamPlan& stream, absl::Span<std::byte* const> dests,
                         CutTask task);
  absl::Status AddSource(const StreamPlan& stream, CutTask& task);
  absl::Status AddDerive(const StreamPlan& stream, const ViewOf& view, const Tensor& tensor,
                         CutTask& task);
  std::vector<IndexMap> Partition(Extent extent) const;
  RowMoves MovesOfView(const StreamPlan& stream);
  RowMoves MovesOfGenerated(const StreamPlan& stream, const Generated& generated) const;

  const ShardPlan& plan_;
  const Batch& batch_;
  const absl::Span<const int64_t> ranks_;
  BufferPool& pool_;
  std::map<std::tuple<Extent, Fill::Kind, bool>, RowMoves>
      viewed_;  // streams of one geometry share
  std::vector<Buffer> derived_;
  std::vector<Task> tasks_;
};

}  // namespace cpshard
