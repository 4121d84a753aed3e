// Panels for the tests of pictures: summaries written out by hand, their numbers counted token by
// token.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/draw/panel.h"

namespace cpshard::draw {

// A plan of rows of as many columns as `owners` has: owners[c] is the rank of column c.
// `documents` has an entry for each row; none: they are not known, and all columns are real.
inline PlanSummary SummaryOf(int64_t num_ranks, const std::vector<int64_t>& owners, int64_t rows,
                             const std::vector<std::vector<DocumentSpan>>& documents = {}) {
  const auto columns = static_cast<int64_t>(owners.size());
  PlanSummary summary;
  summary.rows = rows;
  summary.padded_columns = rows * columns;
  BatchTotals totals;
  BalanceTotals balance;
  summary.loads.resize(num_ranks);
  for (RankLoad& load : summary.loads) load.causal_rows = 0;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<DocumentSpan> spans = {{0, columns, columns}};
    if (!documents.empty()) spans = documents[row];
    std::vector<bool> real(columns, false);
    for (const DocumentSpan& span : spans) {
      for (int64_t i = 0; i < span.length; ++i) {
        const int64_t column = span.begin + i;
        real[column] = i < span.real;
        *summary.loads[owners[column]].causal_rows += static_cast<double>(i + 1);
      }
      if (!documents.empty()) summary.documents.push_back({0, row, span, {}});
    }
    for (int64_t column = 0; column < columns; ++column) {
      TokenCounts& counts = summary.loads[owners[column]].tokens;
      ++(real[column] ? counts.real : counts.pad);
      ++(real[column] ? totals.tokens.real : totals.tokens.pad);
    }
  }
  double most = 0;
  int64_t most_slots = 0;
  for (RankLoad& load : summary.loads) {
    most_slots = std::max(most_slots, load.tokens.real + load.tokens.pad);
    balance.causal_rows.scheduled += *load.causal_rows;
    most = std::max(most, *load.causal_rows);
  }
  balance.causal_rows.imbalance =
      most / (balance.causal_rows.scheduled / static_cast<double>(num_ranks));
  balance.slot_imbalance =
      static_cast<double>(most_slots * num_ranks) / static_cast<double>(summary.padded_columns);
  balance.pad_columns = totals.tokens.pad;
  balance.padded_columns = summary.padded_columns;
  totals.documents = static_cast<int64_t>(summary.documents.size());
  if (!documents.empty()) totals.documents_from = "lengths";
  totals.balance = balance;
  summary.totals = totals;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    IndexMap local;
    for (int64_t column = 0; column < columns; ++column) {
      if (owners[column] == rank) local.Append({column, 1});
    }
    summary.layouts.push_back({.cp_rank = rank, .cp_size = num_ranks, .runs = local.runs()});
  }
  return summary;
}

// "00112233" as owners: a digit is a rank.
inline std::vector<int64_t> Owners(const std::string& digits) {
  std::vector<int64_t> owners;
  for (const char digit : digits) owners.push_back(digit - '0');
  return owners;
}

inline Panel PanelOf(const PlanSummary& summary) {
  return *MakePanel("a_layout", R"({"a_layout":{}})", summary);
}

}  // namespace cpshard::draw
