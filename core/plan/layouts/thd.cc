// Packed documents as one flat stream, cut per document: contract 4.7, with 5 and 6.
#include <utility>

#include "core/plan/layouts.h"
#include "core/plan/thd_plan.h"

namespace cpshard {

Sharder Thd(ThdOptions options, SharedOptions shared) {
  ThdRules rules{
      .layout = "thd", .num_chunks = options.num_chunks, .indices = "_thd_local_indices"};
  return Sharder(
      {.name = "thd", .loss_mask = false, .pad_rule = PadHeadAndTail()}, std::move(shared),
      [rules](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return PlanThd(rules, shared, spec, values);
      },
      ThdNeeds);
}

}  // namespace cpshard
