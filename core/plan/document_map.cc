#include "core/plan/document_map.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

bool IsTwoAxisMask(const TensorSpec* mask) { return mask != nullptr && mask->dims.size() == 2; }

// Ids given element by element; what is cast to i32 decides about padding too.
DocumentMap Viewed(const TensorSpec& tensor) {
  DocumentMap map{tensor.dims};
  map.ids.from = map.padding.from = ViewOf{tensor.name};
  map.ids.cast = map.padding.cast = DType::kI32;
  map.padding.op = Op::kNotPositive;
  return map;
}

// Document i has the id i + 1; those that have no segment are empty.
std::vector<DocumentSpan> Spans(const std::vector<Segment>& ids) {
  std::vector<DocumentSpan> spans;
  int64_t at = 0;
  for (const Segment& segment : ids) {
    if (segment.start > 0) {
      spans.resize(segment.start - 1, {at, 0, 0});
      spans.push_back({at, segment.length, segment.length});
    }
    at += segment.length;
  }
  return spans;
}

DocumentMap Generate(std::vector<int64_t> dims, std::vector<std::vector<Segment>> ids) {
  DocumentMap map{std::move(dims)};
  std::vector<std::vector<Segment>> padding = ids;
  for (std::vector<Segment>& row : padding) {
    for (Segment& segment : row) segment.start = segment.start > 0 ? 0 : 1;
  }
  map.ids.from = Generated{std::move(ids)};
  map.padding.from = Generated{std::move(padding)};
  return map;
}

// ... of rows whose documents are known.
DocumentMap GenerateOfDocuments(std::vector<int64_t> dims, std::vector<std::vector<Segment>> ids) {
  std::vector<std::vector<DocumentSpan>> documents;
  for (const std::vector<Segment>& row : ids) documents.push_back(Spans(row));
  DocumentMap map = Generate(std::move(dims), std::move(ids));
  map.documents = std::move(documents);
  return map;
}

// Documents side by side, cut off at `length`; an empty one takes an id all the same.
std::vector<Segment> RowOfLengths(absl::Span<const Document> documents, int64_t length) {
  std::vector<Segment> row;
  int64_t left = length;
  for (size_t i = 0; i < documents.size() && left > 0; ++i) {
    const int64_t take = std::min(documents[i].padded, left);
    if (take > 0) row.push_back({static_cast<int64_t>(i) + 1, 0, take});
    left -= take;
  }
  if (left > 0) row.push_back({0, 0, left});
  return row;
}

absl::StatusOr<DocumentMap> FromLengths(const BatchSpec& spec, const PlanValues& values,
                                        const TokenRows& rows) {
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, rows));
  CPSHARD_ASSIGN_OR_RETURN(const PackedRows packed, lengths.Rows(0, rows.rows));
  const absl::Span<const Document> documents(packed.documents);
  std::vector<std::vector<Segment>> ids;
  size_t begin = 0;
  for (const size_t end : packed.row_ends) {
    ids.push_back(RowOfLengths(documents.subspan(begin, end - begin), rows.length));
    begin = end;
  }
  if (ids.empty()) ids.push_back({{0, 0, rows.length}});  // of no row: any will do
  DocumentMap map = GenerateOfDocuments({rows.rows, rows.length}, std::move(ids));
  const auto padded =
      std::find_if(documents.begin(), documents.end(),
                   [](const Document& document) { return document.real < document.padded; });
  if (padded != documents.end()) {
    map.notice = Notice{
        "document_padding_counts_as_real",
        absl::StrCat("documents have padding (one of ", padded->real, " tokens in ", padded->padded,
                     " columns) that this layout, as the "
                     "reference, takes for real tokens of theirs (D15)")};
  }
  return map;
}

// The boundaries describe one row, whatever the batch has (contract 4.16 step 3d).
absl::StatusOr<DocumentMap> FromBoundaries(const BatchSpec& spec, const PlanValues& values,
                                           const TokenRows& rows) {
  const auto found = values.find("cu_seqlens");
  if (found == values.end()) {
    return absl::InvalidArgumentError("'cu_seqlens' holds boundaries of documents; send integers");
  }
  const ValueView& view = found->second;
  if (view.size() > kMaxDocumentsTimesRanks / spec.num_ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream 'cu_seqlens' has ", view.size(), " boundaries for ", spec.num_ranks(),
                     " ranks; their product may be ", kMaxDocumentsTimesRanks));
  }
  std::vector<int64_t> boundaries;
  for (int64_t i = 0; i < view.size(); ++i) {
    if (view[i] >= 0) boundaries.push_back(view[i]);
  }
  std::vector<Segment> row;
  if (boundaries.size() < 2) {
    row.push_back({1, 0, rows.length});
    return Generate({1, rows.length}, {std::move(row)});
  }
  if (!std::is_sorted(boundaries.begin(), boundaries.end())) {
    return absl::InvalidArgumentError(
        "stream 'cu_seqlens' does not ascend; boundaries are cumulative lengths");
  }
  int64_t at = 0;
  for (size_t i = 1; i < boundaries.size() && at < rows.length; ++i) {
    const int64_t end = std::min(boundaries[i], rows.length);
    if (end > at) row.push_back({static_cast<int64_t>(i), 0, end - at});
    at = std::max(at, end);
  }
  if (at < rows.length) row.push_back({0, 0, rows.length - at});
  return GenerateOfDocuments({1, rows.length}, {std::move(row)});
}

DocumentMap FromPaddingMask(const BatchSpec& spec, const TokenRows& rows) {
  const TensorSpec* mask = spec.FindTensor("padding_mask");
  if (mask == nullptr) {
    return Generate({rows.rows, rows.length}, {{{1, 0, rows.length}}});
  }
  DocumentMap map{mask->dims};
  map.ids.from = map.padding.from = ViewOf{mask->name};
  map.ids.op = Op::kIsZero;
  map.padding.op = Op::kNotZero;
  return map;
}

}  // namespace

MapSource MapSourceOf(const BatchSpec& spec, bool boundaries) {
  if (spec.FindTensor("_packed_seq_ids") != nullptr) return MapSource::kPackedIds;
  if (IsTwoAxisMask(spec.FindTensor("attention_mask"))) return MapSource::kAttentionMask;
  if (spec.Has("seq_lens_padded") || spec.Has("seq_lens")) return MapSource::kLengths;
  if (boundaries && spec.FindTensor("cu_seqlens") != nullptr) return MapSource::kBoundaries;
  return MapSource::kPaddingMask;
}

std::vector<std::string> MapNeeds(const BatchSpec& spec, bool boundaries) {
  const MapSource source = MapSourceOf(spec, boundaries);
  if (source == MapSource::kLengths) return PackedLengths::Needs(spec);
  const TensorSpec* cumulative = spec.FindTensor("cu_seqlens");
  if (source == MapSource::kBoundaries && IsInteger(cumulative->dtype)) return {"cu_seqlens"};
  return {};
}

absl::StatusOr<DocumentMap> MakeDocumentMap(const BatchSpec& spec, const PlanValues& values,
                                            const RowStreams& streams, const TokenRows& rows,
                                            bool boundaries) {
  switch (MapSourceOf(spec, boundaries)) {
    case MapSource::kPackedIds:
    case MapSource::kAttentionMask: {
      const TensorSpec* tensor = spec.FindTensor("_packed_seq_ids");
      if (tensor == nullptr) tensor = spec.FindTensor("attention_mask");
      CPSHARD_RETURN_IF_ERROR(streams.CheckTokens(*tensor));
      return Viewed(*tensor);
    }
    case MapSource::kLengths:
      return FromLengths(spec, values, rows);
    case MapSource::kBoundaries:
      return FromBoundaries(spec, values, rows);
    case MapSource::kPaddingMask:
      break;
  }
  if (const TensorSpec* mask = spec.FindTensor("padding_mask")) {
    CPSHARD_RETURN_IF_ERROR(streams.CheckTokens(*mask));
  }
  return FromPaddingMask(spec, rows);
}

void EmitDocumentMap(absl::string_view prefix, const DocumentMap& map, const BatchSpec& spec,
                     int64_t local_len, RowStreams& streams) {
  StreamPlan ids{absl::StrCat(prefix, "doc_ids"), DType::kI32, map.dims};
  ids.value = map.ids;
  ids.extent = Extent::kPadded;
  streams.Add(std::move(ids), int64_t{0});
  if (!spec.Has("padding_mask")) {
    StreamPlan padding{"padding_mask", DType::kBool, map.dims};
    padding.value = map.padding;
    streams.Add(std::move(padding), int64_t{1});
  }
  std::vector<Scalar> starts;
  for (int64_t rank = 0; rank < spec.num_ranks(); ++rank) starts.emplace_back(rank * local_len);
  streams.outputs().AddScalar(absl::StrCat(prefix, "seq_start"), std::move(starts));
  streams.outputs().AddScalar(absl::StrCat(prefix, "cp_size"), {spec.num_ranks()});
}

}  // namespace cpshard
