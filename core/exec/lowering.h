// From a plan to tasks: what the executor has to do for the outputs of some ranks.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/batch/buffer.h"
#include "core/exec/moves.h"
#include "core/exec/task.h"
#include "core/plan/plan.h"

namespace cpshard {

// A stream that is ready to be cut, not yet where to.
struct LoweredStream {
  // Without dests. Of its moves, destination k is ranks[k]; a stream that every rank holds whole
  // has one destination, 0.
  CutTask cut;
  Buffer source;         // cut.source is its first byte; empty where nothing is read
  bool derived = false;  // `source` is pooled memory that a task fills, not the batch's
};

// Collects the tasks of one plan, stream by stream. The object owns what is derived on the way, so
// it must live until the tasks are done; plan, batch, ranks and pool must outlive it.
class Lowering {
 public:
  Lowering(const ShardPlan& plan, const Batch& batch, absl::Span<const int64_t> ranks,
           BufferPool& pool)
      : plan_(plan), batch_(batch), ranks_(ranks), pool_(pool) {}

  // The cut of the stream; adds the task that derives it, if there is one. For callers that say
  // themselves, with Add(task), what is written where.
  // Internal: the batch is not the plan's. ResourceExhausted: the pool.
  absl::StatusOr<LoweredStream> Lower(const StreamPlan& stream);

  // Lower, and the tasks that cut: dests[k] receives the stream as ranks[k] gets it; nullptr as in
  // WriteShards.
  absl::Status Add(const StreamPlan& stream, absl::Span<std::byte* const> dests);

  void Add(CutTask task) { tasks_.push_back(std::move(task)); }

  absl::Span<const Task> tasks() const { return tasks_; }

 private:
  using RowMoves = std::shared_ptr<const std::vector<Moves>>;  // one entry, or one per row

  absl::StatusOr<const Tensor*> Find(const ViewOf& view) const;
  void AddCut(const StreamPlan& stream, absl::Span<std::byte* const> dests, CutTask task);
  absl::StatusOr<LoweredStream> LowerWhole(const StreamPlan& stream);
  absl::Status SetSource(const StreamPlan& stream, LoweredStream& lowered);
  absl::StatusOr<Buffer> Derive(const StreamPlan& stream, const ViewOf& view, const Tensor& tensor);
  absl::StatusOr<Buffer> Write(const StreamPlan& stream, const Literal& literal);
  const std::vector<Cuts>& CutsOfChunks(const StreamPlan& stream);
  RowMoves MovesOfView(const StreamPlan& stream);
  RowMoves MovesOfGenerated(const StreamPlan& stream, const Generated& generated);

  const ShardPlan& plan_;
  const Batch& batch_;
  const absl::Span<const int64_t> ranks_;
  BufferPool& pool_;
  // What streams of one geometry share.
  std::map<std::pair<int, Extent>, std::vector<Cuts>> cuts_;  // one per chunk
  std::map<std::tuple<int, Extent, Fill::Kind, bool>, RowMoves> viewed_;
  std::vector<Buffer> derived_;
  std::vector<Task> tasks_;
};

}  // namespace cpshard
