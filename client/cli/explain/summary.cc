#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/explain/aligned_lines.h"
#include "client/cli/explain/report.h"
#include "core/plan/status_macros.h"

namespace cpshard::explain {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownRanks = 64, kShownRows = 16, kShownRanges = 12;

// "0 ... 3, 8, 12 ... 15, and 20 more"
template <typename Items, typename Range>
std::string RangesText(const Items& items, Range range) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(items.size(), kShownRanges); ++i) {
    const auto [begin, length] = range(items[i]);
    shown.push_back(length == 0   ? absl::StrCat("none at ", begin)
                    : length == 1 ? absl::StrCat(begin)
                                  : absl::StrCat(begin, " ... ", begin + length - 1));
  }
  if (items.size() > kShownRanges) {
    shown.push_back(absl::StrCat("and ", items.size() - kShownRanges, " more"));
  }
  return shown.empty() ? "none" : absl::StrJoin(shown, ", ");
}

std::string SlotsText(const LayoutTrace& trace) {
  int64_t least = -1, most = 0;
  for (int64_t rank : trace.ranks()) {
    const int64_t slots = trace.NumSlots(rank);
    least = least < 0 ? slots : std::min(least, slots);
    most = std::max(most, slots);
  }
  return least == most ? absl::StrCat(most, " slots each")
                       : absl::StrCat(least, " to ", most, " slots");
}

std::string RowsText(const LayoutTrace& trace) {
  const RowShape source = trace.source();
  std::string text =
      absl::StrCat(source.rows, " of ", source.columns, " tokens", CountingText(trace));
  if (trace.chunks() > 1) {
    absl::StrAppend(&text, ", in ", trace.chunks(), " chunks of ", trace.padded_len());
  } else if (trace.flattened()) {
    absl::StrAppend(&text, ", as one stream of ", trace.padded_len(), " columns");
  } else {
    absl::StrAppend(&text, ", padded to ", trace.padded_len(), " columns");
  }
  return text;
}

std::string DocumentsText(const RowDocuments& row, const std::vector<DocumentSpan>& spans) {
  if (!row.unknown.empty()) return absl::StrCat("unknown: ", row.unknown);
  if (row.documents.from.empty()) return "the row (no stream tells documents)";
  return absl::StrCat(spans.size(), " by ", row.documents.from, ": columns ",
                      RangesText(spans, [](const DocumentSpan& span) {
                        return std::pair(span.begin, span.length);
                      }));
}

// Calls visit(chunk, row, documents) for every row of every chunk, the first `limit` at most; of
// rows without columns, of which there may be any number, for none.
template <typename Visit>
absl::Status VisitRows(ShardFiles& files, size_t limit, Visit visit) {
  const LayoutTrace& trace = files.trace();
  if (trace.padded_len() == 0) return absl::OkStatus();
  size_t visited = 0;
  for (int64_t chunk = 0; chunk < trace.chunks(); ++chunk) {
    for (int64_t row = 0; row < trace.rows() && visited < limit; ++row, ++visited) {
      CPSHARD_ASSIGN_OR_RETURN(const RowDocuments documents, DocumentsOfRow(files, chunk, row));
      visit(chunk, row, documents);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> SummaryText(ShardFiles& files) {
  const LayoutTrace& trace = files.trace();
  const std::vector<int64_t> ranks = trace.ranks();
  AlignedLines lines;
  lines.Add("batch", absl::StrCat("digest ", files.batch_digest()));
  lines.Add("rows", RowsText(trace));
  lines.Add("ranks", absl::StrCat(ranks.size(), " of ", trace.cp_size(), ", ", SlotsText(trace)));
  lines.AddBreak();
  for (size_t i = 0; i < std::min(ranks.size(), kShownRanks); ++i) {
    const IndexMap& map = trace.ColumnsOf(ranks[i]);
    lines.Add(absl::StrCat("rank ", ranks[i]),
              absl::StrCat(map.size(), " slots in ", map.runs().size(),
                           map.runs().size() == 1 ? " run: columns " : " runs: columns ",
                           RangesText(map.runs(), [](const Run& run) {
                             return std::pair(run.source, run.length);
                           })));
  }
  if (ranks.size() > kShownRanks) {
    lines.Add("...", absl::StrCat(ranks.size() - kShownRanks, " more ranks"));
  }
  lines.AddBreak();
  const bool chunked = trace.chunks() > 1;
  CPSHARD_RETURN_IF_ERROR(
      VisitRows(files, kShownRows, [&](int64_t chunk, int64_t row, const RowDocuments& documents) {
        const std::string where = chunked             ? absl::StrCat(" of chunk ", chunk)
                                  : trace.rows() == 1 ? ""
                                                      : absl::StrCat(" of row ", row);
        lines.Add("documents" + where,
                  DocumentsText(documents, documents.documents.Of(chunk, row)));
      }));
  const int64_t rows = trace.chunks() * trace.rows();
  if (trace.padded_len() > 0 && rows > static_cast<int64_t>(kShownRows)) {
    lines.Add("...", absl::StrCat(rows - static_cast<int64_t>(kShownRows), " more rows"));
  }
  return lines.ToString();
}

absl::StatusOr<std::string> SummaryJson(ShardFiles& files) {
  const LayoutTrace& trace = files.trace();
  Json json = {{"batch_digest", absl::StrCat(files.batch_digest())},
               {"cp_size", trace.cp_size()},
               {"rows", trace.source().rows},
               {"tokens", trace.source().columns},
               {"source_known", trace.knows_source()},
               {"chunks", trace.chunks()},
               {"padded_len", trace.padded_len()}};
  json["ranks"] = Json::array();
  for (int64_t rank : trace.ranks()) {
    const IndexMap& map = trace.ColumnsOf(rank);
    Json runs = Json::array();
    for (const Run& run : map.runs()) runs.push_back({run.source, run.length});
    json["ranks"].push_back({{"rank", rank}, {"slots", map.size()}, {"runs", std::move(runs)}});
  }
  json["documents"] = Json::array();
  CPSHARD_RETURN_IF_ERROR(
      VisitRows(files, SIZE_MAX, [&](int64_t chunk, int64_t row, const RowDocuments& documents) {
        Json spans = Json::array();
        for (const DocumentSpan& span : documents.documents.Of(chunk, row)) {
          spans.push_back({span.begin, span.real, span.length});
        }
        json["documents"].push_back({{"chunk", chunk},
                                     {"row", row},
                                     {"from", documents.documents.from},
                                     {"spans", std::move(spans)}});
      }));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cpshard::explain
