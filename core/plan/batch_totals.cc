#include "core/plan/batch_totals.h"

namespace cpshard {
namespace {

AreaTotals AreaTotalsOf(const AttentionArea& area) {
  return {area.imbalance(), area.useful, area.scheduled};
}

BalanceTotals BalanceTotalsOf(const Balance& balance) {
  BalanceTotals totals;
  totals.causal_rows = AreaTotalsOf(balance.causal_rows);
  totals.full_rows = AreaTotalsOf(balance.full_rows);
  if (balance.causal_documents) totals.causal_documents = AreaTotalsOf(*balance.causal_documents);
  if (balance.full_documents) totals.full_documents = AreaTotalsOf(*balance.full_documents);
  totals.slot_imbalance = balance.slot_imbalance;
  totals.pad_columns = balance.pad_columns;
  totals.padded_columns = balance.padded_columns;
  totals.ranks_of_pads = static_cast<int64_t>(balance.only_pads.size());
  return totals;
}

RankLoad LoadOf(const Inspection& inspection, int64_t rank) {
  RankLoad load{inspection.totals.ranks[rank]};
  if (!inspection.balance) return load;
  const Balance& balance = *inspection.balance;
  load.causal_rows = balance.causal_rows.ranks[rank];
  load.full_rows = balance.full_rows.ranks[rank];
  if (balance.causal_documents) load.causal_documents = balance.causal_documents->ranks[rank];
  if (balance.full_documents) load.full_documents = balance.full_documents->ranks[rank];
  return load;
}

}  // namespace

double BalanceTotals::pad_fraction() const {
  return padded_columns == 0
             ? 0
             : static_cast<double>(pad_columns) / static_cast<double>(padded_columns);
}

BatchReport ReportOf(const Inspection& inspection, absl::Span<const int64_t> ranks) {
  const Totals& totals = inspection.totals;
  BatchReport report;
  report.totals.num_label_tokens = totals.num_label_tokens;
  report.totals.num_tokens_excl_tail_pad = totals.num_tokens_excl_tail_pad;
  report.totals.tokens = totals.batch;
  report.totals.documents = totals.num_documents;
  report.totals.documents_from = inspection.documents.from;
  report.totals.unsupervised_ranks = static_cast<int64_t>(totals.unsupervised_ranks().size());
  if (inspection.balance) report.totals.balance = BalanceTotalsOf(*inspection.balance);
  if (!totals.ranks.empty()) {
    for (int64_t rank : ranks) report.loads.push_back(LoadOf(inspection, rank));
  }
  report.notices = inspection.notices;
  return report;
}

}  // namespace cpshard
