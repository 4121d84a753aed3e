#include "core/plan/pad_rule.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {

std::string PadTerm(absl::string_view term, int64_t multiple) {
  return absl::StrCat(term, " = ", multiple);
}

PadRuleFn PadRows(absl::string_view term, int64_t factor) {
  return [term = std::string(term), factor](const BatchSpec& spec,
                                            int64_t) -> absl::StatusOr<PadRule> {
    PadRule rule;
    CPSHARD_ASSIGN_OR_RETURN(rule.row_multiple, CheckedMultiply(spec.num_ranks(), factor, term));
    rule.row_term = PadTerm(term, rule.row_multiple);
    return rule;
  };
}

PadRuleFn PadHeadAndTail() {
  return [](const BatchSpec& spec, int64_t) -> absl::StatusOr<PadRule> {
    PadRule rule;
    if (spec.num_ranks() == 1) return rule;
    rule.document_multiple = rule.row_multiple = 2 * spec.num_ranks();
    rule.document_term = rule.row_term = PadTerm("2 * cp_size", rule.row_multiple);
    return rule;
  };
}

absl::StatusOr<int64_t> SumOfLengths(absl::Span<const int64_t> lengths) {
  int64_t sum = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= 0 && !__builtin_add_overflow(sum, lengths[i], &sum)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("document ", i, " has length ", lengths[i],
                     lengths[i] < 0 ? "; lengths are 0 or more"
                                    : ", and the sum of the lengths up to it is beyond 64 bits"));
  }
  return sum;
}

absl::StatusOr<PadCosts> PadCostsOf(PadRule rule, absl::Span<const int64_t> lengths) {
  PadCosts costs;
  costs.padded.reserve(lengths.size());
  for (int64_t length : lengths) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t padded,
                             RoundUp(length, rule.document_multiple, rule.document_term));
    costs.padded.push_back(padded);
  }
  CPSHARD_ASSIGN_OR_RETURN(const int64_t sum, SumOfLengths(costs.padded));
  CPSHARD_ASSIGN_OR_RETURN(
      costs.row, RoundUp(std::max(sum, rule.row_minimum), rule.row_multiple, rule.row_term));
  costs.rule = std::move(rule);
  return costs;
}

}  // namespace cpshard
