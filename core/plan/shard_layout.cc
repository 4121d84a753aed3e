#include "core/plan/shard_layout.h"

#include <utility>

namespace cpshard {
namespace {

// [B, S]: the padded column of every source column, -1 where it was dropped.
IntArray StreamPositions(const LayoutPlan& layout) {
  IntArray positions{{layout.rows, layout.source_len},
                     std::vector<int64_t>(layout.rows * layout.source_len, -1)};
  for (int64_t row = 0; row < layout.rows; ++row) {
    const IndexMap& placement = layout.PlacementOf(row);
    for (size_t i = 0; i < placement.runs().size(); ++i) {
      const Run& run = placement.runs()[i];
      if (run.source == kFill) continue;
      for (int64_t k = 0; k < run.length; ++k) {
        positions.values[row * layout.source_len + run.source + k] = placement.starts()[i] + k;
      }
    }
  }
  return positions;
}

}  // namespace

ShardLayout LayoutRecords::Of(int64_t rank) {
  ShardLayout record;
  record.cp_rank = rank;
  record.cp_size = plan_->num_ranks();
  record.batch_digest = batch_digest_;
  IndexMap local;  // over the flattened [C, ...] stream: chunk c's columns are offset by c * T_c
  int64_t offset = 0;
  for (const LayoutPlan& layout : plan_->chunks) {
    for (const Run& run : layout.partition[rank].runs()) {
      local.Append({run.source == kFill ? kFill : run.source + offset, run.length});
    }
    offset += layout.padded_len;
  }
  record.runs = local.runs();
  if (plan_->chunks.size() == 1) AddReport(rank, &record);
  return record;
}

void LayoutRecords::AddReport(int64_t rank, ShardLayout* record) {
  const LayoutPlan& layout = plan_->chunks.front();
  const Report& report = layout.report;
  record->original_seq_len = report.original_seq_len;
  record->padded_seq_len = report.padded_seq_len;
  if (report.input_row_shape) {
    record->input_row_shape =
        IntArray{{2}, {report.input_row_shape->rows, report.input_row_shape->columns}};
  }
  if (report.stream_positions) {
    if (!positions_) positions_ = StreamPositions(layout);
    record->input_token_stream_positions = positions_;
  }
  if (report.indices != Report::Indices::kNone) {
    std::vector<int64_t> indices = layout.partition[rank].Expand();
    const int64_t length = indices.size();
    record->local_token_global_indices =
        IntArray{report.indices_2d ? std::vector<int64_t>{1, length} : std::vector<int64_t>{length},
                 std::move(indices)};
  }
}

ShardLayout LayoutFor(const ShardPlan& plan, int64_t rank, uint64_t batch_digest) {
  return LayoutRecords(plan, batch_digest).Of(rank);
}

}  // namespace cpshard
