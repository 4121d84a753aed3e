// All that can be said about a plan beside the layout itself: documents, balance, totals, and what
// looks unwise. Free functions over plans, for every layout alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/balance.h"
#include "core/plan/documents.h"
#include "core/plan/plan.h"
#include "core/plan/totals.h"

namespace cpshard {

struct Inspection {
  Documents documents;
  std::optional<Balance> balance;  // absent where the plan reports no layout
  Totals totals;
  std::vector<Notice> notices;  // the plan's own, then those of NoticesOf
};

// With what `values` holds of InspectionNeeds. Thread-safe.
Inspection Inspect(const ShardPlan& plan, const BatchSpec& spec, const PlanValues& values,
                   Detail detail = Detail::kDocuments);

// Streams whose values make an inspection complete; those that the batch has.
std::vector<std::string> InspectionNeeds(const BatchSpec& spec);

// Legal, but unwise; codes are stable:
//   documents_cut_as_one   a rank's columns of a row lie apart (round robin), the layout knows no
//                          documents, and positions begin again inside rows: the load is that of
//                          `documents`, not of the row
//   unsupervised_ranks     ranks without a supervised token
//   much_padding           over 20 % of the columns are padding
// Texts name rows, ranks and numbers, and the way out.
std::vector<Notice> NoticesOf(const ShardPlan& plan, const Documents& documents,
                              const std::optional<Balance>& balance, const Totals& totals);

}  // namespace cpshard
