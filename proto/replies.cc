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

}  // namespace

absl::StatusOr<PlanSummary> Summarize(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                      const Limits& limits) {
  PlanSummary summary;
  CPSHARD_ASSIGN_OR_RETURN(summary.shard_bytes, CheckedOutputBytes(plan, ranks, limits));
  for (int64_t rank : ranks) summary.layouts.push_back(LayoutFor(plan, rank, /*batch_digest=*/0));
  for (const StreamPlan& stream : plan.streams) {
    summary.streams.push_back(
        {OutputSpec(plan, stream, ranks.front()), {stream.extent, stream.axis}});
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
  return summary;
}

}  // namespace cpshard
