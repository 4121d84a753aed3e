// Identity: contract 4.1.
#include <utility>

#include "core/plan/layouts.h"
#include "core/plan/token_rows.h"

namespace cpshard {

Sharder Identity(SharedOptions shared) {
  return Sharder({.name = "identity"}, std::move(shared),
                 [](const BatchSpec& spec, const SharedOptions&, const PlanValues&) {
                   return absl::StatusOr<ShardPlan>(PlanWhole(spec));
                 });
}

}  // namespace cpshard
