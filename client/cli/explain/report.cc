#include "client/cli/explain/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/explain/aligned_lines.h"
#include "core/plan/status_macros.h"

namespace cpshard::explain {
namespace {

using Json = nlohmann::ordered_json;

std::string ElementText(const ValueView& view, DType dtype, int64_t i) {
  if (dtype == DType::kBool) return view[i] != 0 ? "true" : "false";
  if (!IsFloating(dtype)) return absl::StrCat(view[i]);
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", view.Number(i));
  return text;
}

std::string ElementsText(const TokenValue& value) {
  const ValueView view = ViewValues(value.elements);
  const DType dtype = value.elements.spec.dtype;
  std::vector<std::string> elements;
  for (int64_t i = 0; i < view.size(); ++i) elements.push_back(ElementText(view, dtype, i));
  std::string text = absl::StrJoin(elements, ", ");
  if (value.size > view.size()) absl::StrAppend(&text, ", ... ", value.size, " in all");
  return value.size == 1 ? text : absl::StrCat("[", text, "]");
}

std::string ValueText(const TokenValue& value) {
  const std::string text = ElementsText(value);
  if (value.extent == Extent::kLocal) return text;
  return absl::StrCat(text, "  (", ExtentName(value.extent), ")");
}

Json ValueJson(const TokenValue& value) {
  const ValueView view = ViewValues(value.elements);
  const DType dtype = value.elements.spec.dtype;
  Json elements = Json::array();
  for (int64_t i = 0; i < view.size(); ++i) {
    if (dtype == DType::kBool) {
      elements.push_back(view[i] != 0);
    } else if (IsFloating(dtype)) {
      elements.push_back(view.Number(i));
    } else {
      elements.push_back(view[i]);
    }
  }
  return {{"dtype", std::string(DTypeName(dtype))},
          {"extent", std::string(ExtentName(value.extent))},
          {"size", value.size},
          {"values", std::move(elements)}};
}

std::string Of(int64_t at, int64_t count) { return absl::StrCat(at, " of ", count); }

std::string RanksText(const LayoutTrace& trace, const TokenPlace& place) {
  if (place.held.empty()) {
    return trace.complete() ? "none holds it"
                            : absl::StrCat("not in the file, which has ", trace.ranks().size(),
                                           " of ", trace.cp_size(), " ranks");
  }
  if (place.held.size() == 1) return Of(place.held[0].rank, trace.cp_size());
  return absl::StrCat("each of ", place.held.size(), ", which hold all columns");
}

std::string SlotText(const LayoutTrace& trace, const PaddedColumn& padded, RankSlot slot) {
  const int64_t slots = trace.NumSlots(slot.rank);
  std::string text = Of(slot.slot, slots);
  if (trace.chunks() > 1) {
    const int64_t local = slots / trace.chunks();
    absl::StrAppend(&text, ", which is [", padded.chunk, ", ", slot.slot - padded.chunk * local,
                    "] of [", trace.chunks(), ", ", local, "]");
  }
  return text;
}

std::string DocumentText(const TokenReport& report) {
  if (!report.unknown.empty()) return absl::StrCat("unknown: ", report.unknown);
  if (!report.document) return "none: padding between documents";
  const DocumentSpan& span = report.document->span;
  std::string text =
      report.from.empty()
          ? "the row (no stream tells documents)"
          : absl::StrCat(Of(report.document->index, report.num_documents), " by ", report.from);
  if (span.length > 0) {
    absl::StrAppend(&text, ": columns ", span.begin, " ... ", span.begin + span.length - 1);
  }
  if (span.real < span.length) {
    absl::StrAppend(&text, ", the last ", span.length - span.real, " padding");
  }
  return text;
}

std::string PositionText(const DocumentPlace& document) {
  if (!document.is_padding()) return Of(document.position, document.span.real);
  return absl::StrCat(document.position, ": padding behind its ", document.span.real, " tokens");
}

std::string NeighbourText(const LayoutTrace& trace, const TokenReport& report,
                          const std::optional<TokenReport::Neighbour>& neighbour,
                          absl::string_view none) {
  if (!neighbour) return std::string(none);
  const TokenPlace& place = neighbour->place;
  std::string text = place.source ? absl::StrCat("token ", place.source->token)
                                  : absl::StrCat("column ", place.padded->column);
  if (place.source && report.place.source && place.source->row != report.place.source->row) {
    absl::StrAppend(&text, " of row ", place.source->row);
  }
  if (place.held.size() == 1) {
    const RankSlot& slot = place.held.front();
    absl::StrAppend(&text, ": rank ", slot.rank, ", slot ", slot.slot);
    if (report.slot && report.slot->rank != slot.rank) absl::StrAppend(&text, " (another rank)");
  } else {
    absl::StrAppend(&text, ": rank ", RanksText(trace, place));
  }
  if (neighbour->id) absl::StrAppend(&text, ", input_ids ", ElementsText(*neighbour->id));
  return text;
}

Json PlaceJson(const TokenPlace& place) {
  Json json;
  json["row"] = place.source ? Json(place.source->row) : Json();
  json["token"] = place.source ? Json(place.source->token) : Json();
  json["chunk"] = place.padded ? Json(place.padded->chunk) : Json();
  json["column"] = place.padded ? Json(place.padded->column) : Json();
  json["held"] = Json::array();
  for (const RankSlot& slot : place.held) {
    json["held"].push_back({{"rank", slot.rank}, {"slot", slot.slot}});
  }
  return json;
}

Json NeighbourJson(const std::optional<TokenReport::Neighbour>& neighbour) {
  if (!neighbour) return Json();
  Json json = PlaceJson(neighbour->place);
  json["input_ids"] = neighbour->id ? ValueJson(*neighbour->id)["values"] : Json();
  return json;
}

absl::StatusOr<std::optional<TokenReport::Neighbour>> NeighbourAt(
    ShardFiles& files, const std::optional<TokenPlace>& place) {
  if (!place) return std::nullopt;
  TokenReport::Neighbour neighbour{*place, {}};
  if (!place->held.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(neighbour.id, files.ValueAt("input_ids", *place, place->held.front()));
  }
  return neighbour;
}

void AddPlace(const LayoutTrace& trace, const TokenReport& report, AlignedLines& lines) {
  const TokenPlace& place = report.place;
  const RowShape source = trace.source();
  if (place.source) {
    lines.Add("row", Of(place.source->row, source.rows));
    lines.Add("token", absl::StrCat(Of(place.source->token, source.columns), CountingText(trace)));
  } else {
    if (!trace.flattened()) lines.Add("row", Of(place.padded->row, trace.rows()));
    lines.Add("token", "none: the layout added this column as padding");
  }
  if (!place.padded) return lines.Add("column", "none: the layout dropped this token");
  if (trace.chunks() > 1) lines.Add("chunk", Of(place.padded->chunk, trace.chunks()));
  lines.Add("column", Of(place.padded->column, trace.padded_len()));
  lines.Add("rank", RanksText(trace, place));
  if (report.slot) lines.Add("slot", SlotText(trace, *place.padded, *report.slot));
  lines.Add("document", DocumentText(report));
  if (report.document) lines.Add("position", PositionText(*report.document));
}

}  // namespace

absl::StatusOr<TokenReport> ReportOn(ShardFiles& files, TokenPlace place,
                                     std::optional<RankSlot> asked) {
  TokenReport report;
  if (place.padded) {
    CPSHARD_ASSIGN_OR_RETURN(const RowDocuments row,
                             DocumentsOfRow(files, place.padded->chunk, place.padded->row));
    const Explanation explanation = Explain(files.trace(), row.documents, place);
    report.document = explanation.document;
    report.num_documents =
        static_cast<int64_t>(row.documents.Of(place.padded->chunk, place.padded->row).size());
    report.from = row.documents.from;
    report.unknown = row.unknown;
    CPSHARD_ASSIGN_OR_RETURN(report.previous, NeighbourAt(files, explanation.previous));
    CPSHARD_ASSIGN_OR_RETURN(report.next, NeighbourAt(files, explanation.next));
  }
  report.slot = asked;
  if (!asked && !place.held.empty()) report.slot = place.held.front();
  if (report.slot) {
    CPSHARD_ASSIGN_OR_RETURN(report.values, files.ValuesAt(place, *report.slot));
  }
  report.place = std::move(place);
  return report;
}

std::string CountingText(const LayoutTrace& trace) {
  if (trace.knows_source()) return "";
  return trace.chunks() > 1 ? " (the rows as one stream)" : " (padding counts too)";
}

std::string ToText(const LayoutTrace& trace, const TokenReport& report) {
  AlignedLines lines;
  AddPlace(trace, report, lines);
  if (!report.values.empty()) lines.AddBreak();
  for (const TokenValue& value : report.values) lines.Add(value.name, ValueText(value));
  if (!report.document || report.document->is_padding()) return lines.ToString();
  lines.AddBreak();
  lines.Add("previous",
            NeighbourText(trace, report, report.previous, "none: the document begins here"));
  lines.Add("next", NeighbourText(trace, report, report.next, "none: the document ends here"));
  return lines.ToString();
}

std::string ToJson(const LayoutTrace& trace, const TokenReport& report) {
  Json json = PlaceJson(report.place);
  json["cp_size"] = trace.cp_size();
  json["source_known"] = trace.knows_source();
  json["all_ranks_known"] = trace.complete();
  json["document"] = Json();
  if (report.document) {
    const DocumentPlace& document = *report.document;
    json["document"] = {{"index", document.index},
                        {"begin", document.span.begin},
                        {"real", document.span.real},
                        {"length", document.span.length},
                        {"position", document.position},
                        {"padding", document.is_padding()},
                        {"from", report.from}};
  }
  json["rank"] = report.slot ? Json(report.slot->rank) : Json();
  json["slot"] = report.slot ? Json(report.slot->slot) : Json();
  json["streams"] = Json::object();
  for (const TokenValue& value : report.values) json["streams"][value.name] = ValueJson(value);
  json["previous"] = NeighbourJson(report.previous);
  json["next"] = NeighbourJson(report.next);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cpshard::explain
