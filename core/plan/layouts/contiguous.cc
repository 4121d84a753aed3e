// Contiguous: contract 4.2.
#include <utility>

#include "core/plan/contiguous_rows.h"
#include "core/plan/layouts.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::StatusOr<ShardPlan> Plan(const ContiguousOptions& options, const SharedOptions& shared,
                               const BatchSpec& spec) {
  CPSHARD_ASSIGN_OR_RETURN(ContiguousRows rows, ContiguousRows::Begin(spec, shared, options));
  return rows.Plan();
}

}  // namespace

Sharder Contiguous(ContiguousOptions options, SharedOptions shared) {
  LayoutTraits traits{.name = "contiguous",
                      .needs_mesh = true,
                      .extras = true,
                      .extra_pads = true,
                      .pad_rule = ContiguousRows::Padding(options.pad_multiple)};
  return Sharder(std::move(traits), std::move(shared),
                 [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues&) {
                   return Plan(options, shared, spec);
                 });
}

}  // namespace cpshard
