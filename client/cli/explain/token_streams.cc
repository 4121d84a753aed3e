#include "client/cli/explain/token_streams.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard::explain {
namespace {

// The streams that every layout cuts alike: one of them that does not go with the layout is an
// error, where others may be of another axis (visual rows) or of no tokens.
bool IsOfTokens(absl::string_view name) {
  return name == "input_ids" || name == "inputs_embeds" || name == "labels" ||
         name == "loss_mask" || name == "padding_mask" || name == "position_ids";
}

int64_t SlotsOf(const ShardLayout& layout) {
  int64_t slots = 0;
  for (const Run& run : layout.runs) slots += std::clamp<int64_t>(run.length, 0, int64_t{1} << 40);
  return slots;
}

// The axis that a stream of somebody else's file was cut on (docs/WIRE.md).
int DefaultAxis(const TensorSpec& spec, const ShardLayout& layout) {
  if (spec.name == "position_ids" && spec.dims.size() == 3) return 2;
  return layout.input_row_shape ? 0 : 1;
}

int RowAxis(const TensorSpec& spec, int axis) {
  return spec.name == "position_ids" && axis == 2 && spec.dims.size() == 3 ? 1 : 0;
}

absl::StatusOr<StreamCut> CutOf(const RankFile& file, size_t index, const ShardLayout& layout) {
  CPSHARD_ASSIGN_OR_RETURN(const std::optional<StreamCut> said, file.CutOf(index));
  const TensorSpec& spec = file.tensors()[index];
  const int axes = static_cast<int>(spec.dims.size());
  if (!said) {
    const int axis = DefaultAxis(spec, layout);
    const bool cut = axis < axes && spec.dims[axis] == SlotsOf(layout);
    return StreamCut{cut ? Extent::kLocal : Extent::kWhole, axis};
  }
  if (said->extent == Extent::kWhole || said->seq_axis < axes) return *said;
  return absl::InvalidArgumentError(absl::StrCat("'", file.path(), "': stream '", spec.name, "' ",
                                                 DimsString(spec.dims), " has no axis ",
                                                 said->seq_axis, " that it could be cut on"));
}

bool ReportsNothing(const ShardLayout& layout) {
  return !layout.padded_seq_len && !layout.original_seq_len && !layout.input_row_shape &&
         !layout.input_token_stream_positions;
}

// Rows and chunks as one stream tells them; nullopt: it does not go with the layout.
std::optional<LayoutTrace::StreamShape> ShapeBy(const TensorSpec& spec, const StreamCut& cut,
                                                const ShardLayout& layout) {
  const std::vector<int64_t>& dims = spec.dims;
  const int axis = cut.seq_axis;
  const auto of_rows = [&](int axis) {
    return LayoutTrace::StreamShape{axis == 0 ? 1 : dims[RowAxis(spec, axis)], 1};
  };
  if (cut.extent == Extent::kWhole) {
    if (dims.size() < 2 || dims[1] != layout.original_seq_len) return std::nullopt;
    return of_rows(1);
  }
  if (cut.extent == Extent::kPadded) {
    if (dims[axis] != layout.padded_seq_len) return std::nullopt;
    return of_rows(axis);
  }
  const int64_t slots = SlotsOf(layout);
  if (dims[axis] == slots) return of_rows(axis);
  // [C, L, ...]: of several chunks no layout is reported (contract 4.7).
  if (axis == 0 || !ReportsNothing(layout) || NumElements(spec) == 0 || slots % dims[axis] != 0 ||
      slots / dims[axis] != dims[axis - 1]) {
    return std::nullopt;
  }
  return LayoutTrace::StreamShape{1, dims[axis - 1]};
}

// What is counted on the axis, and which axis that is, of a stream that was not cut.
std::optional<TokenStream> AlignWhole(const TensorSpec& spec, const LayoutTrace& trace) {
  const std::vector<int64_t>& dims = spec.dims;
  if (IsAboutDocuments(spec.name) || dims.empty()) return std::nullopt;
  TokenStream stream{.spec = spec, .extent = Extent::kWhole, .axis = 1};
  const auto is = [&](int64_t rows, int64_t columns) {
    return dims.size() >= 2 && dims[0] == rows && dims[1] == columns;
  };
  if (trace.knows_source() && is(trace.source().rows, trace.source().columns)) {
    stream.by = TokenStream::By::kToken;
  } else if (!trace.flattened() && is(trace.rows(), trace.padded_len())) {
    stream.by = TokenStream::By::kColumn;
  } else if (trace.flattened() && trace.chunks() == 1 && dims[0] == trace.padded_len()) {
    stream.by = TokenStream::By::kColumn;
    stream.axis = 0;
    return stream;
  } else {
    return std::nullopt;
  }
  stream.row_axis = 0;
  return stream;
}

std::optional<TokenStream> AlignCut(const TensorSpec& spec, const StreamCut& cut, int64_t local_len,
                                    const LayoutTrace& trace) {
  const std::vector<int64_t>& dims = spec.dims;
  const bool local = cut.extent == Extent::kLocal;
  TokenStream stream{.spec = spec, .extent = cut.extent, .axis = cut.seq_axis};
  stream.by = local ? TokenStream::By::kSlot : TokenStream::By::kColumn;
  if (dims[stream.axis] != (local ? local_len : trace.padded_len())) return std::nullopt;
  if (local && trace.chunks() > 1) {
    if (stream.axis == 0 || dims[stream.axis - 1] != trace.chunks()) return std::nullopt;
    stream.chunk_axis = stream.axis - 1;
    return stream;
  }
  if (stream.axis == 0) return stream;
  stream.row_axis = RowAxis(spec, stream.axis);
  const int64_t rows = dims[*stream.row_axis];  // one row may stand for all
  return rows == trace.rows() || rows == 1 ? std::optional(stream) : std::nullopt;
}

}  // namespace

bool IsAboutDocuments(absl::string_view name) {
  return name == "cu_seqlens" || name == "cu_seqlens_padded" || name == "seq_lens" ||
         name == "seq_lens_padded" || name == "max_seqlen";
}

absl::StatusOr<LayoutTrace::StreamShape> ShapeOf(const RankFile& file, const ShardLayout& layout) {
  if (layout.runs.empty() && !layout.padded_seq_len) return LayoutTrace::StreamShape();
  std::optional<LayoutTrace::StreamShape> shape;
  int best = 0;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorSpec& spec = file.tensors()[i];
    CPSHARD_ASSIGN_OR_RETURN(const StreamCut cut, CutOf(file, i, layout));
    const std::optional<LayoutTrace::StreamShape> told = ShapeBy(spec, cut, layout);
    const bool of_tokens = IsOfTokens(spec.name);
    if (!told && of_tokens && cut.extent == Extent::kLocal) {
      return absl::FailedPreconditionError(absl::StrCat(
          "'", file.path(), "': stream '", spec.name, "' ", DimsString(spec.dims), " has not the ",
          SlotsOf(layout), " slots of its layout on axis ", cut.seq_axis, " (another batch?)"));
    }
    // What was cut tells better than what was not, a stream of tokens better than another, and one
    // row, which may stand for all, only where nothing has more.
    const int of_extent = cut.extent == Extent::kLocal ? 6 : cut.extent == Extent::kPadded ? 3 : 0;
    const bool one_for_all = spec.name == "position_ids" && told && told->rows == 1;
    const int worth = of_extent + (one_for_all ? 1 : of_tokens ? 3 : 2);
    if (!told || worth <= best) continue;
    best = worth;
    shape = told;
  }
  if (shape) return *shape;
  return absl::FailedPreconditionError(
      absl::StrCat("'", file.path(), "' has no stream of tokens that goes with its layout of ",
                   SlotsOf(layout), " slots"));
}

absl::StatusOr<std::vector<TokenStream>> TokenStreamsOf(const RankFile& file,
                                                        const ShardLayout& layout,
                                                        const LayoutTrace& trace) {
  const int64_t local_len = trace.NumSlots(layout.cp_rank) / trace.chunks();
  std::vector<TokenStream> streams;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorSpec& spec = file.tensors()[i];
    CPSHARD_ASSIGN_OR_RETURN(const StreamCut cut, CutOf(file, i, layout));
    std::optional<TokenStream> stream = cut.extent == Extent::kWhole
                                            ? AlignWhole(spec, trace)
                                            : AlignCut(spec, cut, local_len, trace);
    if (!stream) continue;
    stream->index = i;
    streams.push_back(*std::move(stream));
  }
  return streams;
}

std::vector<int64_t> OffsetsAt(const TokenStream& stream, const LayoutTrace& trace,
                               const TokenPlace& place, RankSlot slot, int64_t limit) {
  const bool by_token = stream.by == TokenStream::By::kToken;
  if (by_token ? !place.source : !place.padded) return {};
  const std::vector<int64_t>& dims = stream.spec.dims;
  std::vector<std::optional<int64_t>> at(dims.size());  // absent: all of that axis
  const int64_t chunk = place.padded ? place.padded->chunk : 0;
  switch (stream.by) {
    case TokenStream::By::kToken:
      at[stream.axis] = place.source->token;
      break;
    case TokenStream::By::kColumn:
      at[stream.axis] = place.padded->column;
      break;
    case TokenStream::By::kSlot:
      at[stream.axis] = slot.slot - chunk * (trace.NumSlots(slot.rank) / trace.chunks());
      break;
  }
  if (stream.chunk_axis) at[*stream.chunk_axis] = chunk;
  if (stream.row_axis) {
    const int64_t row = by_token ? place.source->row : place.padded->row;
    at[*stream.row_axis] = dims[*stream.row_axis] == 1 ? 0 : row;
  }
  std::vector<int64_t> offsets = {0};
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    std::vector<int64_t> finer;
    for (int64_t offset : offsets) {
      const int64_t choices = at[axis] ? 1 : std::min(dims[axis], limit);
      for (int64_t k = 0; k < choices; ++k)
        finer.push_back(offset * dims[axis] + at[axis].value_or(k));
    }
    if (static_cast<int64_t>(finer.size()) > limit) finer.resize(limit);
    offsets = std::move(finer);
  }
  return offsets;
}

int64_t ElementsOf(const TokenStream& stream) {
  int64_t elements = 1;
  for (int axis = 0; axis < static_cast<int>(stream.spec.dims.size()); ++axis) {
    if (axis == stream.axis || stream.row_axis == axis || stream.chunk_axis == axis) continue;
    elements *= stream.spec.dims[axis];
  }
  return elements;
}

}  // namespace cpshard::explain
