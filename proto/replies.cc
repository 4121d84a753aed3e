#include "proto/replies.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr size_t kMaxHeld = size_t{1} << 17;  // slots named in the answers of a call

int64_t FillColumns(const IndexMap& placement) {
  int64_t columns = 0;
  for (const Run& run : placement.runs()) {
    if (run.source == kFill) columns += run.length;
  }
  return columns;
}

// A summary is sent or printed rank by rank, and with each rank the positions that
// CheckedLayoutBytes counts once.
absl::Status CheckLayouts(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                          const Limits& limits) {
  CPSHARD_RETURN_IF_ERROR(CheckedLayoutBytes(plan, ranks, limits).status());
  Limits left = limits;
  for (int64_t rank : ranks) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t bytes, CheckedLayoutBytes(plan, {rank}, left));
    left.max_batch_bytes -= bytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanSummary> Summarize(const ShardPlan& plan, const Inspection& inspection,
                                      absl::Span<const int64_t> ranks, const Limits& limits) {
  PlanSummary summary;
  CPSHARD_ASSIGN_OR_RETURN(summary.shard_bytes, CheckedOutputBytes(plan, ranks, limits));
  CPSHARD_RETURN_IF_ERROR(CheckLayouts(plan, ranks, limits));
  LayoutRecords records(plan, /*batch_digest=*/0);
  for (int64_t rank : ranks) summary.layouts.push_back(records.Of(rank));
  for (const StreamPlan& stream : plan.streams) {
    summary.streams.push_back({OutputSpec(plan, stream, ranks.front()), CutOf(plan, stream)});
  }
  for (const LayoutPlan& layout : plan.chunks) {
    summary.rows += layout.rows;
    summary.padded_columns += layout.rows * layout.padded_len;
    const bool alike = layout.placement.size() == 1;
    for (const IndexMap& placement : layout.placement) {
      summary.pad_columns += FillColumns(placement) * (alike ? layout.rows : 1);
    }
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<int64_t> all, ResolveRanks({}, plan.num_ranks()));
  BatchReport report = ReportOf(inspection, all);
  summary.totals = std::move(report.totals);
  summary.loads = std::move(report.loads);
  summary.notices = std::move(report.notices);
  summary.documents = inspection.totals.documents;
  summary.choice = plan.choice;
  summary.row_need = plan.row_need;
  return summary;
}

absl::StatusOr<std::vector<Explanation>> AnswerQueries(const ShardPlan& plan,
                                                       const Documents& documents,
                                                       absl::Span<const PlaceQuery> queries) {
  std::vector<Explanation> answers;
  if (queries.empty()) return answers;
  if (static_cast<int64_t>(queries.size()) > kMaxQueries) {
    return absl::InvalidArgumentError(absl::StrCat(queries.size(), " queries, over the ",
                                                   kMaxQueries, " of one call; ask in several"));
  }
  CPSHARD_ASSIGN_OR_RETURN(const LayoutTrace trace, LayoutTrace::Of(plan));
  size_t held = 0;  // of all answers
  for (const PlaceQuery& query : queries) {
    const auto* token = std::get_if<SourceToken>(&query);
    absl::StatusOr<TokenPlace> place =
        token != nullptr
            ? trace.OfToken(*token)
            : trace.OfSlot(std::get<SlotQuery>(query).slot, std::get<SlotQuery>(query).row);
    if (!place.ok()) {
      return absl::Status(place.status().code(),
                          absl::StrCat("query ", answers.size(), ": ", place.status().message()));
    }
    answers.push_back(Explain(trace, documents, *std::move(place)));
    held += answers.back().place.held.size();
    if (held <= kMaxHeld) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the answers to ", answers.size(), " of ", queries.size(), " queries name ",
                     held, " slots, as many ranks hold each token; ask fewer"));
  }
  return answers;
}

}  // namespace cpshard
