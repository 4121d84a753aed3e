#include "core/plan/repacked_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {

int64_t WidthOf(const PlacedRow& row) {
  return row.empty() ? 0 : row.back().start + row.back().width;
}

absl::Status CheckPlacedRows(const TokenRows& rows) {
  if (rows.rows >= 1 && rows.rows <= kMaxPlacedRows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("stream '", rows.primary->name, "' ", DimsString(rows.primary->dims),
                   " has B = ", rows.rows, " rows; a packed batch has 1 ... ", kMaxPlacedRows));
}

absl::Status Place(PlacedDocument document, int64_t multiple, absl::string_view what,
                   PlacedRow& row) {
  CPSHARD_ASSIGN_OR_RETURN(document.width, RoundUp(document.real, multiple, what));
  document.start = WidthOf(row);
  int64_t end;
  if (__builtin_add_overflow(document.start, document.width, &end)) {
    return absl::InvalidArgumentError(absl::StrCat(row.size() + 1, " documents widened to ", what,
                                                   " = ", multiple, " are beyond 64 bits"));
  }
  row.push_back(document);
  return absl::OkStatus();
}

RepackedRows::RepackedRows(std::vector<PlacedRow> rows, InnerPadding padding, int64_t row_len,
                           int64_t padded_len)
    : rows_(std::move(rows)), padding_(padding), row_len_(row_len), padded_len_(padded_len) {}

LayoutPlan RepackedRows::Layout(const TokenRows& rows) const {
  LayoutPlan layout;
  layout.rows = rows.rows;
  layout.source_len = rows.length;
  layout.padded_len = padded_len_;
  for (const PlacedRow& row : rows_) {
    IndexMap placement;
    for (const PlacedDocument& document : row) {
      placement.Append({document.source, document.real});
      placement.Append({kFill, document.width - document.real});
    }
    placement.Append({kFill, padded_len_ - placement.size()});
    layout.placement.push_back(std::move(placement));
    std::vector<DocumentSpan>& documents = layout.documents.emplace_back();
    for (const PlacedDocument& document : row) {
      documents.push_back({document.start, document.real, document.width});
    }
  }
  return layout;
}

// Calls in_document(document, segments) for each, and gives what is left the value `tail`.
template <typename InDocument>
StreamPlan RepackedRows::Emit(absl::string_view name, DType dtype, const TokenRows& rows,
                              int64_t tail, InDocument in_document) const {
  Generated generated;
  generated.over_padded_columns = true;
  for (const PlacedRow& row : rows_) {
    std::vector<Segment> segments;
    for (const PlacedDocument& document : row) in_document(document, segments);
    segments.push_back({tail, 0, padded_len_ - WidthOf(row)});
    generated.rows.push_back(std::move(segments));
  }
  StreamPlan stream{std::string(name), dtype, {rows.rows, rows.length}};
  stream.value.from = std::move(generated);
  return stream;
}

StreamPlan RepackedRows::Positions(const TokenRows& rows) const {
  const bool of_document = padding_ == InnerPadding::kOfTheDocument;
  StreamPlan stream = Emit("position_ids", DType::kI64, rows, 0,
                           [&](const PlacedDocument& document, std::vector<Segment>& segments) {
                             const int64_t counted = of_document ? document.width : document.real;
                             segments.push_back({0, 1, counted});
                             segments.push_back({0, 0, document.width - counted});
                           });
  if (padded_len_ == row_len_) return stream;
  std::vector<std::vector<Segment>>& generated = std::get<Generated>(stream.value.from).rows;
  for (size_t row = 0; row < rows_.size(); ++row) {
    std::vector<Segment>& segments = generated[row];
    segments.back().length -= padded_len_ - row_len_;
    int64_t last = -1;  // the value of column row_len - 1
    for (const Segment& segment : segments) {
      if (segment.length > 0) last = segment.start + segment.step * (segment.length - 1);
    }
    segments.push_back({last + 1, 1, padded_len_ - row_len_});
  }
  return stream;
}

StreamPlan RepackedRows::Ids(const TokenRows& rows) const {
  const bool of_document = padding_ == InnerPadding::kOfTheDocument;
  return Emit("packed_seq_ids", DType::kI64, rows, 0,
              [&](const PlacedDocument& document, std::vector<Segment>& segments) {
                const int64_t own = of_document ? document.width : document.real;
                segments.push_back({document.id, 0, own});
                segments.push_back({0, 0, document.width - own});
              });
}

StreamPlan RepackedRows::Mask(absl::string_view name, bool on_padding,
                              const TokenRows& rows) const {
  const int64_t padding = on_padding ? 1 : 0;
  return Emit(name, DType::kBool, rows, padding,
              [&](const PlacedDocument& document, std::vector<Segment>& segments) {
                segments.push_back({1 - padding, 0, document.real});
                segments.push_back({padding, 0, document.width - document.real});
              });
}

}  // namespace cpshard
