#include "proto/replies.h"

#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

int64_t FillColumns(const IndexMap& placement) {
  int64_t columns = 0;
  for (const Run& run : placement.runs()) {
    if (run.source == kFill) columns += run.length;
  }
  return columns;
}

// A summary is sent or printed rank by rank, and with each rank the positions that
// CheckedLayoutBytes counts once.
absl::Status CheckLayouts(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                          const Limits& limits) {
  CPSHARD_RETURN_IF_ERROR(CheckedLayoutBytes(plan, ranks, limits).status());
  Limits left = limits;
  for (int64_t rank : ranks) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t bytes, CheckedLayoutBytes(plan, {rank}, left));
    left.max_batch_bytes -= bytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanSummary> Summarize(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                      const Limits& limits) {
  PlanSummary summary;
  CPSHARD_ASSIGN_OR_RETURN(summary.shard_bytes, CheckedOutputBytes(plan, ranks, limits));
  CPSHARD_RETURN_IF_ERROR(CheckLayouts(plan, ranks, limits));
  LayoutRecords records(plan, /*batch_digest=*/0);
  for (int64_t rank : ranks) summary.layouts.push_back(records.Of(rank));
  for (const StreamPlan& stream : plan.streams) {
    summary.streams.push_back({OutputSpec(plan, stream, ranks.front()), CutOf(plan, stream)});
  }
  for (const LayoutPlan& layout : plan.chunks) {
    summary.rows += layout.rows;
    summary.padded_columns += layout.rows * layout.padded_len;
    const bool alike = layout.placement.size() == 1;
    for (const IndexMap& placement : layout.placement) {
      summary.pad_columns += FillColumns(placement) * (alike ? layout.rows : 1);
    }
  }
  summary.notices = plan.notices;
  summary.choice = plan.choice;
  summary.row_need = plan.row_need;
  return summary;
}

}  // namespace cpshard
