// Identity: contract 4.1.
#include <utility>

#include "core/plan/layouts.h"
#include "core/plan/outputs.h"
#include "core/plan/partition.h"
#include "core/plan/token_rows.h"

namespace cpshard {
namespace {

absl::StatusOr<ShardPlan> Plan(const BatchSpec& spec) {
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  Outputs(spec).MoveInto(plan);
  // inputs_embeds decides when both are there; a primary without a sequence axis: no layout.
  const TensorSpec* primary = spec.FindTensor("inputs_embeds");
  if (!spec.Has("inputs_embeds")) primary = spec.FindTensor("input_ids");
  if (primary != nullptr && primary->dims.size() >= 2) {
    const int64_t length = primary->dims[1];
    LayoutPlan layout = TailPadded({primary, primary->dims[0], length}, length);
    layout.partition = WholePartition(length, spec.num_ranks());
    layout.report.original_seq_len = length;
    layout.report.padded_seq_len = length;
    plan.chunks.push_back(std::move(layout));
  }
  return plan;
}

}  // namespace

Sharder Identity(SharedOptions shared) {
  return Sharder(
      {.name = "identity"}, std::move(shared),
      [](const BatchSpec& spec, const SharedOptions&, const PlanValues&) { return Plan(spec); });
}

}  // namespace cpshard
