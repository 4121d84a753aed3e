// An inspection without its lists: what is small enough to travel with every answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/inspect.h"
#include "core/plan/plan.h"
#include "core/plan/totals.h"

namespace cpshard {

// Of an AttentionArea, all ranks together.
struct AreaTotals {
  double imbalance = 1, useful = 0, scheduled = 0;
  friend bool operator==(const AreaTotals&, const AreaTotals&) = default;
};

// Of a Balance.
struct BalanceTotals {
  AreaTotals causal_rows, full_rows;
  std::optional<AreaTotals> causal_documents, full_documents;
  double slot_imbalance = 1;
  int64_t pad_columns = 0, padded_columns = 0;
  int64_t ranks_of_pads = 0;

  double pad_fraction() const;  // 0 where there are no columns
  friend bool operator==(const BalanceTotals&, const BalanceTotals&) = default;
};

// Of the whole batch, whichever ranks are asked for; all of it already summed over the ranks of the
// CP group (totals.h).
struct BatchTotals {
  std::optional<int64_t> num_label_tokens, num_tokens_excl_tail_pad;
  TokenCounts tokens;
  int64_t documents = 0;       // 0: nothing tells them
  std::string documents_from;  // as Documents::from
  int64_t unsupervised_ranks = 0;
  std::optional<BalanceTotals> balance;
  friend bool operator==(const BatchTotals&, const BatchTotals&) = default;
};

// Of one rank: its slots, and the areas of Balance as far as they are there.
struct RankLoad {
  TokenCounts tokens;
  std::optional<double> causal_rows, full_rows, causal_documents, full_documents;
  friend bool operator==(const RankLoad&, const RankLoad&) = default;
};

// What an answer says of a batch beside its shards.
struct BatchReport {
  BatchTotals totals;
  std::vector<RankLoad> loads;  // of the ranks asked for; none where no rank's slots are counted
  std::vector<Notice> notices;
};

// Precondition: the ranks are ranks of the plan that was inspected.
BatchReport ReportOf(const Inspection& inspection, absl::Span<const int64_t> ranks);

}  // namespace cpshard
