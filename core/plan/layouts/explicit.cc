// A partition handed in as data. Rows are padded as contiguous pads them (contract 4.2), up to the
// columns that the partition has.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/contiguous_rows.h"
#include "core/plan/layouts.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

using Ranks = std::vector<std::vector<Run>>;

struct Held {
  Run run;
  int64_t rank;
};

absl::Status CheckRun(int64_t rank, size_t index, const Run& run) {
  int64_t end;
  if (run.source >= 0 && run.length > 0 && !__builtin_add_overflow(run.source, run.length, &end)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("explicit.ranks[", rank, "].runs[", index, "] is source ", run.source,
                   ", length ", run.length, "; a run has columns from 0 on, one at least"));
}

// Columns of the partition: every one is held once.
absl::StatusOr<int64_t> CheckedColumns(const Ranks& ranks) {
  std::vector<Held> held;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t i = 0; i < ranks[rank].size(); ++i) {
      CPSHARD_RETURN_IF_ERROR(CheckRun(rank, i, ranks[rank][i]));
      held.push_back({ranks[rank][i], static_cast<int64_t>(rank)});
    }
  }
  std::sort(held.begin(), held.end(),
            [](const Held& a, const Held& b) { return a.run.source < b.run.source; });
  int64_t columns = 0;
  for (const auto& [run, rank] : held) {
    if (run.source != columns) {
      return absl::InvalidArgumentError(absl::StrCat(
          "explicit: column ", std::min(run.source, columns), " is held ",
          run.source > columns ? "by no rank" : "twice", " (a run of rank ", rank, " begins at ",
          run.source, ", those before it end at ", columns, "); a partition holds each once"));
    }
    columns += run.length;
  }
  return columns;
}

absl::StatusOr<LayoutPlan> LayoutOf(const Ranks& ranks, const BatchSpec& spec,
                                    const TokenRows& rows) {
  if (static_cast<int64_t>(ranks.size()) != *spec.cp_size) {
    return absl::InvalidArgumentError(absl::StrCat("explicit lists ", ranks.size(),
                                                   " ranks, the mesh has cp_size ", *spec.cp_size));
  }
  CPSHARD_ASSIGN_OR_RETURN(const int64_t columns, CheckedColumns(ranks));
  if (columns < rows.length) {
    return absl::InvalidArgumentError(absl::StrCat("explicit lists ", columns,
                                                   " columns, but rows of '", rows.primary->name,
                                                   "' have ", rows.length, "; list them all"));
  }
  LayoutPlan layout = TailPadded(rows, columns);
  for (const std::vector<Run>& runs : ranks) {
    layout.partition.emplace_back();
    for (const Run& run : runs) layout.partition.back().Append(run);
  }
  layout.report.original_seq_len = rows.length;
  layout.report.padded_seq_len = columns;
  layout.report.indices = Report::Indices::kI64;
  layout.padded_to = "the columns that the option explicit lists";
  return layout;
}

// Rows have the columns of the partition, no more and no fewer.
absl::StatusOr<PadRule> Padding(const Ranks& ranks, int64_t tokens) {
  PadRule rule;
  CPSHARD_ASSIGN_OR_RETURN(rule.row_minimum, CheckedColumns(ranks));
  if (tokens <= rule.row_minimum) return rule;
  return absl::InvalidArgumentError(absl::StrCat("explicit lists ", rule.row_minimum,
                                                 " columns, but the documents have ", tokens,
                                                 " tokens; list them all"));
}

absl::StatusOr<ShardPlan> Plan(const Ranks& ranks, const SharedOptions& shared,
                               const BatchSpec& spec) {
  CPSHARD_ASSIGN_OR_RETURN(
      ContiguousRows rows,
      ContiguousRows::BeginWith(spec, shared, Primary::kCut, {}, [&](const TokenRows& rows) {
        return LayoutOf(ranks, spec, rows);
      }));
  return rows.Plan();
}

}  // namespace

Sharder Explicit(std::vector<std::vector<Run>> ranks, SharedOptions shared) {
  LayoutTraits traits{
      .name = "explicit",
      .needs_mesh = true,
      .pad_rule = [ranks](const BatchSpec&, int64_t tokens) { return Padding(ranks, tokens); }};
  return Sharder(
      std::move(traits), std::move(shared),
      [ranks = std::move(ranks)](const BatchSpec& spec, const SharedOptions& shared,
                                 const PlanValues&) { return Plan(ranks, shared, spec); });
}

}  // namespace cpshard
