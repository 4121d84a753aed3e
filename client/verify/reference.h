// Our side of a comparison: the plan of the batch, and streams cut by it, one at a time, as they
// are asked for. Nothing else of the shards is ever in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/plan/documents.h"
#include "core/plan/explain.h"
#include "core/plan/plan.h"

namespace cpshard::verify {

// Where an element of a stream that has columns lies.
struct ElementPlace {
  int64_t outer = 0;  // over the axes before the sequence axis; chunks are not counted
  PaddedColumn column;
  int64_t slot = 0;   // of the rank, in its chunk
  int64_t inner = 0;  // over the axes behind the sequence axis
};

// What stands on columns without a token; nullopt: no integer, or none of one value.
std::optional<int64_t> FillOf(const StreamPlan& stream);

// The axes of a stream as ranks hold it.
class StreamAxes {
 public:
  // The plan must outlive the object. Precondition: the stream is not kWhole.
  StreamAxes(const ShardPlan& plan, const StreamPlan& stream);

  // Of element `element` of the part of `rank`.
  ElementPlace At(int64_t rank, int64_t element) const;
  // The element of the uncut stream ([outer, P, inner], chunks first) at a place.
  int64_t InUncut(const ElementPlace& place) const;

  int64_t RowOf(int64_t outer) const;
  // Outer indices of the same sub-axes (the same rope axis), over all rows.
  bool SameLane(int64_t outer, int64_t other) const;

  int64_t outer() const { return outer_; }
  int64_t inner() const { return inner_; }
  int64_t columns() const { return layouts_.front().padded_len; }
  int64_t chunks() const { return static_cast<int64_t>(layouts_.size()); }
  absl::Span<const LayoutPlan> layouts() const { return layouts_; }
  bool is_local() const { return local_; }

 private:
  absl::Span<const LayoutPlan> layouts_;
  bool local_;
  int64_t outer_ = 1, inner_ = 1, row_divisor_ = 1, rows_ = 1;
};

class Reference {
 public:
  // Plans the batch. `batch` and what is behind the pointers must outlive the object.
  // Errors: those of ShardBatch (core/exec/shard.h).
  static absl::StatusOr<Reference> Make(const Batch& batch, const Sharder& sharder,
                                        std::optional<int64_t> cp_size,
                                        absl::Span<const int64_t> ranks, Executor& executor,
                                        BufferPool& pool);

  const Batch& batch() const { return *batch_; }
  const ShardPlan& plan() const { return plan_; }
  const Documents& documents() const { return documents_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }  // asked for
  bool has_trace() const { return trace_.has_value(); }
  BufferPool& pool() const { return *pool_; }

  // Whether the batch has that row. Of one without rows a stream that stands for all of them
  // (position_ids of mRoPE) has elements all the same. Precondition, here and below: has_trace().
  bool Has(const PaddedColumn& column) const { return trace_->OfColumn(column).ok(); }

  // Where a column of the tokens came from and who holds it. Precondition: Has(column).
  Explanation At(PaddedColumn column) const;

  // Parts of it, for what is asked of many columns. Cost: log(runs), whatever the ranks are.
  // The caller's token; nullopt: the column has none.
  std::optional<SourceToken> SourceOf(const PaddedColumn& column) const;
  // The document whose columns, padding included, these are; nullptr: none.
  const DocumentSpan* DocumentAt(const PaddedColumn& column) const;
  // A column without a token, or outside of the real ones of a document.
  bool IsPadding(const PaddedColumn& column) const;

  // The stream as each of `ranks` holds it. ResourceExhausted: the pool.
  absl::StatusOr<std::vector<Tensor>> Cut(const StreamPlan& stream,
                                          absl::Span<const int64_t> ranks) const;
  // ... if the columns were dealt out to the ranks by `partitions`, one per chunk.
  absl::StatusOr<std::vector<Tensor>> CutBy(const StreamPlan& stream,
                                            const std::vector<std::vector<IndexMap>>& partitions,
                                            absl::Span<const int64_t> ranks) const;
  // All columns, before they are dealt out.
  absl::StatusOr<Tensor> Uncut(const StreamPlan& stream) const;

  // Whether the parts of all ranks together are within what a batch may be.
  bool MayCutAllRanks() const;

 private:
  absl::StatusOr<std::vector<Tensor>> CutWith(const ShardPlan& maps, const StreamPlan& stream,
                                              absl::Span<const int64_t> ranks) const;

  const Batch* batch_ = nullptr;
  ShardPlan plan_;
  Documents documents_;
  std::optional<LayoutTrace> trace_;
  std::vector<int64_t> ranks_;
  Executor* executor_ = nullptr;
  BufferPool* pool_ = nullptr;
};

}  // namespace cpshard::verify
