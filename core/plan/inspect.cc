#include "core/plan/inspect.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace cpshard {
namespace {

constexpr int64_t kMostPadding = 5;  // a fifth of all columns
constexpr size_t kListedRanks = 8;

double Hundredths(double number) { return std::round(number * 100) / 100; }

// --- documents that are cut as one ---------------------------------------------------------------

bool AnyRankIsInPieces(const LayoutPlan& layout) {
  return std::any_of(layout.partition.begin(), layout.partition.end(),
                     [](const IndexMap& local) { return local.runs().size() > 1; });
}

struct Inside {
  int64_t documents = 0;
  int64_t second = 0;  // where the second begins
};

// Of two tokens at least: a single column of padding looks like a document of one.
Inside DocumentsInside(const std::vector<DocumentSpan>& row) {
  Inside inside;
  for (const DocumentSpan& span : row) {
    if (span.real > 1 && ++inside.documents == 2) inside.second = span.begin;
  }
  return inside;
}

void AddDocumentsCutAsOne(const ShardPlan& plan, const Documents& documents,
                          const std::optional<Balance>& balance, std::vector<Notice>& notices) {
  if (documents.from.empty()) return;
  int64_t rows = 0, packed = 0;
  std::string first;
  for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    const LayoutPlan& layout = plan.chunks[chunk];
    if (!layout.documents.empty() || !AnyRankIsInPieces(layout)) continue;
    rows += layout.rows;
    for (int64_t row = 0; row < layout.rows; ++row) {
      const Inside inside = DocumentsInside(documents.Of(chunk, row));
      if (inside.documents < 2 || packed++ > 0) continue;
      first = absl::StrCat("row ", row, " has ", inside.documents, ", the second from column ",
                           inside.second, " on");
    }
  }
  if (packed == 0) return;
  std::string text =
      absl::StrCat("ranks hold pieces of a row as if it were one document, but '", documents.from,
                   "' begins anew inside ", packed, " of ", rows, " rows (", first, ")");
  if (balance && balance->causal_documents) {
    absl::StrAppend(&text, "; the largest rank has ",
                    Hundredths(balance->causal_documents->imbalance()),
                    " times the mean of the causal attention within documents, ",
                    Hundredths(balance->causal_rows.imbalance()), " times that of whole rows");
  }
  absl::StrAppend(&text, "; for packed rows send 'seq_lens' and use layout thd");
  notices.push_back({"documents_cut_as_one", std::move(text)});
}

// --- ranks without a supervised token ------------------------------------------------------------

std::string Listed(const std::vector<int64_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kListedRanks); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kListedRanks) {
    absl::StrAppend(&text, " and ", ranks.size() - kListedRanks, " more");
  }
  return text;
}

void AddUnsupervisedRanks(const Totals& totals, std::vector<Notice>& notices) {
  const std::vector<int64_t> ranks = totals.unsupervised_ranks();
  if (ranks.empty()) return;
  const int64_t supervised = totals.batch.supervised.value_or(0);
  std::string text;
  if (supervised == 0) {
    text = absl::StrCat("no label of the batch counts: all that are placed are ", kIgnoredLabel,
                        ", so a mean of the losses divides by zero on every rank; leave the batch "
                        "out, or check how labels are masked");
  } else {
    text = absl::StrCat(ranks.size(), " of ", totals.ranks.size(), " ranks (", Listed(ranks),
                        ") hold no label but ", kIgnoredLabel,
                        ", so a mean of their own losses divides by zero; add up the losses of "
                        "the group and divide by its ",
                        supervised, " labels");
  }
  notices.push_back({"unsupervised_ranks", std::move(text)});
}

// --- much padding --------------------------------------------------------------------------------

// Columns of all rows that no column of the batch fills.
int64_t FillColumns(const LayoutPlan& layout) {
  int64_t fill = 0;
  for (const IndexMap& placement : layout.placement) {
    for (const Run& run : placement.runs()) fill += run.source == kFill ? run.length : 0;
  }
  return layout.placement.size() == 1 ? fill * layout.rows : fill;
}

void AddMuchPadding(const ShardPlan& plan, const Totals& totals, std::vector<Notice>& notices) {
  const int64_t columns = totals.batch.real + totals.batch.pad;
  if (totals.batch.pad <= columns / kMostPadding) return;
  int64_t added = 0;
  for (const LayoutPlan& layout : plan.chunks) added += FillColumns(layout);
  const double percent =
      100.0 * static_cast<double>(totals.batch.pad) / static_cast<double>(columns);
  std::string text =
      absl::StrCat(totals.batch.pad, " of ", columns, " columns (", Hundredths(percent),
                   " %) are padding, ", added, " of them added by the layout");
  const LayoutPlan& layout = plan.chunks.front();
  if (added > 0) {
    absl::StrAppend(&text, ": rows of ", layout.source_len, " columns become ", layout.padded_len);
    if (!layout.padded_to.empty()) absl::StrAppend(&text, ", ", layout.padded_to);
  }
  absl::StrAppend(&text, "; pack documents closer, or put rows of like lengths together");
  notices.push_back({"much_padding", std::move(text)});
}

}  // namespace

std::vector<Notice> NoticesOf(const ShardPlan& plan, const Documents& documents,
                              const std::optional<Balance>& balance, const Totals& totals) {
  std::vector<Notice> notices;
  AddDocumentsCutAsOne(plan, documents, balance, notices);
  AddUnsupervisedRanks(totals, notices);
  AddMuchPadding(plan, totals, notices);
  return notices;
}

Inspection Inspect(const ShardPlan& plan, const BatchSpec& spec, const PlanValues& values,
                   Detail detail) {
  Inspection inspection;
  inspection.documents = DocumentsOf(plan, spec, values);
  if (!plan.chunks.empty()) inspection.balance = BalanceOf(plan, inspection.documents);
  inspection.totals = TotalsOf(plan, inspection.documents, spec, values, detail);
  inspection.notices = plan.notices;
  for (Notice& notice :
       NoticesOf(plan, inspection.documents, inspection.balance, inspection.totals)) {
    inspection.notices.push_back(std::move(notice));
  }
  return inspection;
}

std::vector<std::string> InspectionNeeds(const BatchSpec& spec) {
  std::vector<std::string> needs = DocumentsNeeds(spec);
  for (std::string& name : TotalsNeeds(spec)) {
    if (std::find(needs.begin(), needs.end(), name) == needs.end()) needs.push_back(name);
  }
  return needs;
}

}  // namespace cpshard
