#include "client/cli/explain/shard_documents.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "core/plan/status_macros.h"

namespace cpshard::explain {
namespace {

using Spans = std::vector<DocumentSpan>;

// Row `row` of a stream [n] (row 0 alone) or [rows, n], without the unused places behind it.
absl::StatusOr<std::optional<std::vector<int64_t>>> LengthsOf(ShardFiles& files,
                                                              const std::string& name,
                                                              int64_t row) {
  CPSHARD_ASSIGN_OR_RETURN(const std::optional<Tensor> tensor, files.ReadWhole(name));
  if (!tensor) return std::nullopt;
  const std::vector<int64_t>& dims = tensor->spec.dims;
  if (dims.empty() || dims.size() > 2 || (dims.size() == 1 ? row > 0 : row >= dims[0])) {
    return std::nullopt;
  }
  const ValueView values = ViewValues(*tensor);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < dims.back() && values[row * dims.back() + i] >= 0; ++i) {
    lengths.push_back(values[row * dims.back() + i]);
  }
  return lengths;
}

// Lengths that add up to `columns` or fewer as spans; none if they do not, or disagree.
Spans SpansOf(absl::Span<const int64_t> real, absl::Span<const int64_t> padded, int64_t columns) {
  Spans spans;
  int64_t begin = 0;
  for (size_t i = 0; i < padded.size(); ++i) {
    const int64_t own = i < real.size() ? real[i] : -1;
    if (own < 0 || own > padded[i] || padded[i] > columns - begin) return {};
    spans.push_back({begin, own, padded[i]});
    begin += padded[i];
  }
  return spans;
}

// Boundaries as lengths; none if they do not ascend from 0.
std::vector<int64_t> Differences(absl::Span<const int64_t> boundaries) {
  std::vector<int64_t> lengths;
  if (boundaries.empty() || boundaries[0] != 0) return lengths;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    if (boundaries[i] < boundaries[i - 1]) return {};
    lengths.push_back(boundaries[i] - boundaries[i - 1]);
  }
  return lengths;
}

// What a stream of boundaries or lengths says may be of other columns than these (lengths before
// padding, of rows that were laid out anew): real tokens of a document have sources in a row.
bool GoesWith(const IndexMap& placement, const Spans& spans) {
  for (const DocumentSpan& span : spans) {
    if (span.real == 0) continue;
    const int64_t first = placement.At(span.begin);
    const int64_t last = placement.At(span.begin + span.real - 1);
    if (first == kFill || last == kFill || last - first != span.real - 1) return false;
  }
  return !spans.empty();
}

struct Told {
  Spans spans;
  std::string from;
};

Told IfItGoes(const IndexMap& placement, Told told) {
  return GoesWith(placement, told.spans) ? told : Told();
}

int64_t RealColumns(const IndexMap& placement) {
  int64_t real = 0;
  for (const Run& run : placement.runs()) real += run.source == kFill ? 0 : run.length;
  return real;
}

absl::StatusOr<Told> ByBoundaries(ShardFiles& files, int64_t chunk) {
  if (files.trace().rows() != 1) return Told();
  CPSHARD_ASSIGN_OR_RETURN(const auto real, LengthsOf(files, "cu_seqlens", chunk));
  CPSHARD_ASSIGN_OR_RETURN(const auto padded, LengthsOf(files, "cu_seqlens_padded", chunk));
  const auto& outer = padded ? padded : real;
  // Those of the real lengths alone end before the columns do: they are no places.
  const IndexMap& placement = files.trace().PlacementOf(chunk, 0);
  const bool fits = outer && !outer->empty() &&
                    (outer->back() == placement.size() || outer->back() == RealColumns(placement));
  if (!fits) return Told();
  Spans spans = SpansOf(Differences(real ? *real : *outer), Differences(*outer), placement.size());
  return IfItGoes(placement, {std::move(spans), padded ? "cu_seqlens_padded" : "cu_seqlens"});
}

absl::StatusOr<Told> ByLengths(ShardFiles& files, int64_t chunk, int64_t row) {
  if (files.trace().flattened()) return Told();
  CPSHARD_ASSIGN_OR_RETURN(const auto real, LengthsOf(files, "seq_lens", row));
  CPSHARD_ASSIGN_OR_RETURN(const auto padded, LengthsOf(files, "seq_lens_padded", row));
  if (!real) return Told();
  const IndexMap& placement = files.trace().PlacementOf(chunk, row);
  Spans spans = SpansOf(*real, padded ? *padded : *real, placement.size());
  return IfItGoes(placement, {std::move(spans), padded ? "seq_lens_padded" : "seq_lens"});
}

// Positions that the layout made count the stream, not its rows: where a row begins they go on.
bool GoesOnOverRows(const std::vector<int64_t>& positions, int64_t columns) {
  const auto count = static_cast<int64_t>(positions.size());
  for (int64_t at = columns; columns > 0 && at < count; at += columns) {
    if (positions[at - 1] == INT64_MAX || positions[at] != positions[at - 1] + 1) return false;
  }
  return columns > 0 && count > columns;
}

// By the rules for the streams of a batch (core/plan/documents.h): the columns with a source are
// the one row, or the flattened rows, of a plan.
Told ByValues(const LayoutTrace& trace, int64_t chunk, int64_t row, const std::string& name,
              const ShardFiles::Row& stream) {
  LayoutPlan layout;
  std::vector<int64_t> sources;
  IndexMap& placement = layout.placement.emplace_back();
  for (const Run& run : trace.PlacementOf(chunk, row).runs()) {
    const bool fill = run.source == kFill;
    const auto from = stream.columns.begin() + placement.size();
    placement.Append({fill ? kFill : static_cast<int64_t>(sources.size()), run.length});
    if (!fill) sources.insert(sources.end(), from, from + run.length);
  }
  layout.rows = 1;
  layout.source_len = static_cast<int64_t>(sources.size());
  layout.padded_len = placement.size();
  std::vector<int64_t> dims = {1, layout.source_len};
  if (trace.flattened() && trace.knows_source() && trace.chunks() == 1 &&
      !(name == "position_ids" && GoesOnOverRows(sources, trace.source().columns))) {
    layout.flattened_from = trace.source();
    dims = {trace.source().rows, trace.source().columns};
  }
  if (stream.three_axes) dims.insert(dims.begin(), 1);
  ShardPlan plan;
  plan.chunks = {std::move(layout)};

  BatchSpec spec;
  const std::string known_as = name == "position_ids" ? name : "_packed_seq_ids";
  spec.tensors = {{known_as, DType::kI64, dims}};
  PlanValues values;
  values.emplace(known_as,
                 ValueView(DType::kI64, dims, reinterpret_cast<const std::byte*>(sources.data())));
  const Documents documents = DocumentsOf(plan, spec, values);
  if (documents.from.empty()) return Told();
  return Told{documents.Of(0, 0), name};
}

constexpr const char* kValues[] = {"_packed_seq_ids", "packed_seq_ids", "kimi_packed_doc_ids",
                                   "kimi_packed_context.doc_ids", "position_ids"};

// The layout may have made ids and positions itself, of whole rows: ids of 1 alone are a mask.
bool TellsSeveral(const std::string& name, const ShardFiles::Row& stream, const Spans& spans) {
  return spans.size() > 1 &&
         (name == "position_ids" || std::any_of(stream.columns.begin(), stream.columns.end(),
                                                [](int64_t id) { return id > 1; }));
}

// By the first of these streams that tells several documents of the row, else by the first that
// tells any.
Told ByAnyValues(const LayoutTrace& trace, int64_t chunk, int64_t row,
                 const ShardFiles::Rows& streams) {
  Told first;
  for (const char* name : kValues) {
    const auto found = streams.find(name);
    if (found == streams.end()) continue;
    Told told = ByValues(trace, chunk, row, name, found->second);
    if (TellsSeveral(name, found->second, told.spans)) return told;
    if (first.from.empty()) first = std::move(told);
  }
  return first;
}

// Padding at the end of a document that the mask knows of is none of its real tokens.
void TakeOffPadding(const std::vector<int64_t>& mask, Spans& spans) {
  for (DocumentSpan& span : spans) {
    while (span.real > 0 && mask[span.begin + span.real - 1] != 0) --span.real;
  }
}

RowDocuments Of(const LayoutTrace& trace, int64_t chunk, Told told) {
  RowDocuments result;
  result.documents.from = std::move(told.from);
  // A single entry, which is that of any row: there may be many, and no other is asked for.
  result.documents.chunks.assign(trace.chunks(), RowsDocuments(1));
  result.documents.chunks[chunk].front() = std::move(told.spans);
  return result;
}

}  // namespace

absl::StatusOr<RowDocuments> DocumentsOfRow(ShardFiles& files, int64_t chunk, int64_t row) {
  const LayoutTrace& trace = files.trace();
  CPSHARD_ASSIGN_OR_RETURN(Told told, ByBoundaries(files, chunk));
  if (told.from.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(told, ByLengths(files, chunk, row));
  }
  if (!trace.complete()) {
    RowDocuments result = Of(trace, chunk, std::move(told));
    if (result.documents.from.empty()) {
      result.unknown = "the streams of all ranks would tell, and some are not in the layouts file";
    }
    return result;
  }
  std::vector<std::string> names(std::begin(kValues), std::end(kValues));
  names.push_back("padding_mask");
  CPSHARD_ASSIGN_OR_RETURN(const ShardFiles::Rows rows, files.ReadRow(names, chunk, row));
  if (told.from.empty()) told = ByAnyValues(trace, chunk, row, rows);
  if (told.from.empty()) {
    const IndexMap& placement = trace.PlacementOf(chunk, row);
    told.spans = {{0, RealColumns(placement), placement.size()}};
  }
  const auto mask = rows.find("padding_mask");
  if (mask != rows.end()) TakeOffPadding(mask->second.columns, told.spans);
  return Of(trace, chunk, std::move(told));
}

}  // namespace cpshard::explain
