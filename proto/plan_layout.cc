#include "proto/plan_layout.h"

#include <utility>

#include "absl/status/status.h"
#include "core/batch/batch.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::StatusOr<PadCosts> CostsOf(const Sharder& sharder, const BatchSpec& spec,
                                 absl::Span<const int64_t> lengths) {
  CPSHARD_ASSIGN_OR_RETURN(const int64_t tokens, SumOfLengths(lengths));
  CPSHARD_ASSIGN_OR_RETURN(PadRule rule, sharder.PadRuleOf(spec, tokens));
  return PadCostsOf(std::move(rule), lengths);
}

bool HasValues(const std::vector<std::string>& names, const Request& request) {
  for (const std::string& name : names) {
    if (request.spec.FindTensor(name) == nullptr) continue;  // for the layout to judge
    const Tensor* tensor = request.batch.FindTensor(name);
    const bool there =
        tensor != nullptr && static_cast<int64_t>(tensor->buffer.size()) == NumBytes(tensor->spec);
    if (!there) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<PlanSummary> PlanLayoutOf(const Request& request, const PlanQuestions& questions,
                                         const Limits& limits, PlanReply reply) {
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, request.options.MakeSharder());
  const BatchSpec& spec = request.spec;
  PlanSummary other;  // what is answered without a plan
  if (!questions.document_lengths.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(other.pad_costs, CostsOf(sharder, spec, questions.document_lengths));
    other.choice = other.pad_costs->rule.choice;
    const bool no_batch = spec.tensors.empty() && spec.scalars.empty();
    if (no_batch && questions.queries.empty()) return other;
  }
  other.needs = sharder.Needs(spec);
  if (!HasValues(other.needs, request)) return other;
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan,
                           sharder.Plan(spec, ViewNeeds(sharder, spec, request.batch)));
  CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan, request.ranks, limits).status());
  if (reply == PlanReply::kOfACall) {
    CPSHARD_RETURN_IF_ERROR(CheckPlanLayoutReply(plan, request.ranks));
  }
  const Inspection inspection = InspectBatch(plan, spec, request.batch);
  CPSHARD_ASSIGN_OR_RETURN(PlanSummary summary, Summarize(plan, inspection, request.ranks, limits));
  CPSHARD_ASSIGN_OR_RETURN(summary.answers,
                           AnswerQueries(plan, inspection.documents, questions.queries));
  summary.needs = std::move(other.needs);
  summary.pad_costs = std::move(other.pad_costs);
  return summary;
}

}  // namespace cpshard
