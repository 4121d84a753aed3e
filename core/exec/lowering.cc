#include "core/exec/lowering.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/exec/elementwise.h"
#include "core/exec/moves.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Whether all outer indices of the stream are placed alike.
bool RowsAlike(const StreamPlan& stream, const LayoutPlan& layout) {
  return stream.batch_axis < 0 || layout.placement.size() == 1;
}

}  // namespace

absl::StatusOr<LoweredStream> Lowering::Lower(const StreamPlan& stream) {
  if (stream.extent == Extent::kWhole) return LowerWhole(stream);
  LoweredStream lowered;
  CutTask& cut = lowered.cut;
  cut.dtype = stream.dtype;
  cut.fill = stream.fill.value;
  const absl::Span<const int64_t> dims(stream.dims);
  cut.outer = Product(dims.subspan(0, stream.axis));
  cut.column_bytes = Product(dims.subspan(stream.axis + 1)) * ItemSize(stream.dtype);
  if (stream.batch_axis >= 0) {
    cut.row_divisor =
        Product(dims.subspan(stream.batch_axis + 1, stream.axis - stream.batch_axis - 1));
  }
  CPSHARD_RETURN_IF_ERROR(SetSource(stream, lowered));
  if (const size_t chunks = LayoutsOf(plan_, stream).size(); chunks > 1) {
    // A chunk is a row of its own moves, which know its window of the source.
    cut.outer = static_cast<int64_t>(chunks);
    cut.source_stride = 0;
  }
  if (cut.outer == 0) {  // a batch without rows, of which a plan need not say anything
    cut.moves = std::make_shared<const std::vector<Moves>>(1);
    return lowered;
  }
  const Generated* generated = std::get_if<Generated>(&stream.value.from);
  cut.moves = generated != nullptr ? MovesOfGenerated(stream, *generated) : MovesOfView(stream);
  return lowered;
}

absl::Status Lowering::Add(const StreamPlan& stream, absl::Span<std::byte* const> dests) {
  if (std::all_of(dests.begin(), dests.end(), [](std::byte* dest) { return dest == nullptr; })) {
    return absl::OkStatus();
  }
  CPSHARD_ASSIGN_OR_RETURN(LoweredStream lowered, Lower(stream));
  if (stream.extent == Extent::kLocal) {
    AddCut(stream, dests, std::move(lowered.cut));
    return absl::OkStatus();
  }
  for (std::byte* dest : dests) {  // the same bytes for everybody who wants them
    if (dest != nullptr) AddCut(stream, {&dest, 1}, lowered.cut);
  }
  return absl::OkStatus();
}

absl::StatusOr<const Tensor*> Lowering::Find(const ViewOf& view) const {
  const Tensor* tensor = batch_.FindTensor(view.source);
  if (tensor != nullptr) return tensor;
  return absl::InternalError(
      absl::StrCat("the plan reads stream '", view.source, "', which the batch does not have"));
}

void Lowering::AddCut(const StreamPlan& stream, absl::Span<std::byte* const> dests, CutTask task) {
  for (size_t k = 0; k < dests.size(); ++k) {
    const int64_t bytes = NumBytes(OutputSpec(plan_, stream, ranks_[k]));
    task.dests.push_back(dests[k]);
    task.dest_strides.push_back(task.outer > 0 ? bytes / task.outer : 0);
  }
  Add(std::move(task));
}

// The whole tensor is one column of one row.
absl::StatusOr<LoweredStream> Lowering::LowerWhole(const StreamPlan& stream) {
  LoweredStream lowered;
  if (const Literal* literal = std::get_if<Literal>(&stream.value.from)) {
    CPSHARD_ASSIGN_OR_RETURN(lowered.source, Write(stream, *literal));
    lowered.derived = true;
  } else {
    const ViewOf& view = std::get<ViewOf>(stream.value.from);
    CPSHARD_ASSIGN_OR_RETURN(const Tensor* tensor, Find(view));
    lowered.source = tensor->buffer;
    lowered.derived = !IsPlainView(stream, tensor->spec.dtype);
    if (lowered.derived) {
      CPSHARD_ASSIGN_OR_RETURN(lowered.source, Derive(stream, view, *tensor));
    }
  }
  Move all;
  all.length = 1;
  lowered.cut.source = lowered.source.data();
  lowered.cut.outer = 1;
  lowered.cut.column_bytes = static_cast<int64_t>(lowered.source.size());
  lowered.cut.dtype = stream.dtype;
  lowered.cut.moves = std::make_shared<const std::vector<Moves>>(1, Moves{all});
  return lowered;
}

// Points the cut at the source columns; derives them first where the expression computes.
absl::Status Lowering::SetSource(const StreamPlan& stream, LoweredStream& lowered) {
  const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
  if (view == nullptr) return absl::OkStatus();  // generated: no source
  CPSHARD_ASSIGN_OR_RETURN(const Tensor* tensor, Find(*view));
  lowered.source = tensor->buffer;
  lowered.derived = !IsPlainView(stream, tensor->spec.dtype);
  if (lowered.derived) {
    CPSHARD_ASSIGN_OR_RETURN(lowered.source, Derive(stream, *view, *tensor));
  }
  const bool one_row = view->how == ViewOf::How::kBroadcastRow;
  const int64_t outer = one_row ? 0 : Product(absl::MakeConstSpan(stream.dims).first(stream.axis));
  lowered.cut.source = lowered.source.data();
  lowered.cut.source_stride = outer == 0 ? 0 : static_cast<int64_t>(lowered.source.size()) / outer;
  return absl::OkStatus();
}

absl::StatusOr<Buffer> Lowering::Derive(const StreamPlan& stream, const ViewOf& view,
                                        const Tensor& tensor) {
  DeriveTask derive;
  derive.source = tensor.buffer.data();
  derive.source_dtype = tensor.spec.dtype;
  derive.dest_dtype = stream.dtype;
  derive.count = NumElements(tensor.spec);
  derive.cast = stream.value.cast;
  derive.op = stream.value.op;
  derive.operand = stream.value.operand;
  if (view.how == ViewOf::How::kHeadZeroDiagonal) {
    const std::vector<int64_t>& dims = tensor.spec.dims;
    derive.is_diagonal = true;
    derive.count = Product(stream.dims);
    derive.diagonal = {dims[1], dims[2], dims[3]};
  }
  CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool_.Allocate(derive.count * ItemSize(stream.dtype)));
  derive.dest = buffer.data();
  tasks_.push_back(std::move(derive));
  derived_.push_back(buffer);
  return buffer;
}

absl::StatusOr<Buffer> Lowering::Write(const StreamPlan& stream, const Literal& literal) {
  const int64_t item = ItemSize(stream.dtype);
  CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool_.Allocate(literal.values.size() * item));
  std::byte* to = buffer.data();
  for (const int64_t value : literal.values) {
    RampElements(to, stream.dtype, value, /*step=*/0, /*length=*/1, /*inner=*/1);
    to += item;
  }
  derived_.push_back(buffer);
  return buffer;
}

const std::vector<Cuts>& Lowering::CutsOfChunks(const StreamPlan& stream) {
  std::vector<Cuts>& cuts = cuts_[{stream.layout, stream.extent}];
  if (!cuts.empty()) return cuts;
  for (const LayoutPlan& layout : LayoutsOf(plan_, stream)) {
    const IndexMap whole = IndexMap::Identity(layout.padded_len);
    cuts.push_back(stream.extent == Extent::kPadded ? CutsOf({&whole, 1}, {0})
                                                    : CutsOf(layout.partition, ranks_));
  }
  return cuts;
}

Lowering::RowMoves Lowering::MovesOfView(const StreamPlan& stream) {
  const absl::Span<const LayoutPlan> layouts = LayoutsOf(plan_, stream);
  const std::vector<IndexMap>& columns = std::get<ViewOf>(stream.value.from).columns;
  const bool alike = RowsAlike(stream, layouts.front()) && columns.size() <= 1;
  RowMoves* known = nullptr;
  if (columns.empty() && !stream.fill.tail) {
    known = &viewed_[{stream.layout, stream.extent, stream.fill.kind, alike}];
    if (*known != nullptr) return *known;
  }
  const std::vector<Cuts>& cuts = CutsOfChunks(stream);
  auto moves = std::make_shared<std::vector<Moves>>();
  for (size_t c = 0; c < cuts.size(); ++c) {
    const size_t rows = alike ? 1 : std::max(layouts[c].placement.size(), columns.size());
    for (size_t row = 0; row < rows; ++row) {
      const IndexMap& placement = layouts[c].PlacementOf(static_cast<int64_t>(row));
      moves->push_back(columns.empty()
                           ? CutMoves(placement, cuts[c], stream.fill)
                           : CutMoves(columns[columns.size() == 1 ? 0 : row].Then(placement),
                                      cuts[c], stream.fill));
    }
  }
  if (known != nullptr) *known = moves;
  return moves;
}

Lowering::RowMoves Lowering::MovesOfGenerated(const StreamPlan& stream,
                                              const Generated& generated) {
  const std::vector<GeneratedRow> rows(generated.rows.begin(), generated.rows.end());
  const absl::Span<const LayoutPlan> layouts = LayoutsOf(plan_, stream);
  const std::vector<Cuts>& cuts = CutsOfChunks(stream);
  auto moves = std::make_shared<std::vector<Moves>>();
  for (size_t c = 0; c < cuts.size(); ++c) {
    const LayoutPlan& layout = layouts[c];
    const size_t placements = RowsAlike(stream, layout) ? 1 : layout.placement.size();
    for (size_t row = 0; row < std::max(placements, rows.size()); ++row) {
      moves->push_back(GeneratedMoves(rows[rows.size() == 1 ? 0 : row],
                                      generated.over_padded_columns,
                                      layout.placement[placements == 1 ? 0 : row], cuts[c]));
    }
  }
  return moves;
}

}  // namespace cpshard
