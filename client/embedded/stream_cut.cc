#include "client/embedded/stream_cut.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/status_macros.h"

namespace cpshard::embedded {
namespace {

absl::StatusOr<const StreamPlan*> Find(const ShardPlan& plan, absl::string_view name) {
  for (const StreamPlan& stream : plan.streams) {
    if (stream.name == name) return &stream;
  }
  const std::string all = absl::StrJoin(
      plan.streams, ", ",
      [](std::string* out, const StreamPlan& stream) { absl::StrAppend(out, stream.name); });
  return absl::NotFoundError(
      absl::StrCat("the layout makes no stream '", name, "'; it makes ", all));
}

bool HasFill(absl::Span<const LayoutPlan> layouts) {
  for (const LayoutPlan& layout : layouts) {
    for (const IndexMap& placement : layout.placement) {
      for (const Run& run : placement.runs()) {
        if (run.source == kFill) return true;
      }
    }
  }
  return false;
}

// OK: the stream's elements are the source's and one fill.
absl::Status CheckCut(const ShardPlan& plan, const BatchSpec& spec, const StreamPlan& stream) {
  const auto computed = [&](absl::string_view how) {
    return absl::FailedPreconditionError(absl::StrCat("stream '", stream.name, "' is computed (",
                                                      how,
                                                      "), not cut of a tensor; have it written"));
  };
  const auto* view = std::get_if<ViewOf>(&stream.value.from);
  if (view == nullptr) return computed("it is made by the layout");
  const TensorSpec* source = spec.FindTensor(view->source);
  if (source == nullptr || !IsPlainView(stream, source->dtype)) {
    return computed(absl::StrCat("of '", view->source, "', element by element"));
  }
  if (stream.extent == Extent::kWhole) return absl::OkStatus();
  if (stream.fill.tail) return computed("its fill has two values");
  if (stream.fill.kind == Fill::Kind::kContinue && HasFill(LayoutsOf(plan, stream))) {
    return computed("its fill goes on where the row ends");
  }
  return absl::OkStatus();
}

// Slot <- source column of a row of one chunk.
IndexMap Columns(const StreamPlan& stream, const ViewOf& view, const LayoutPlan& layout,
                 int64_t rank, int64_t row) {
  IndexMap placed = layout.PlacementOf(row);
  if (!view.columns.empty()) {
    placed = view.columns[view.columns.size() == 1 ? 0 : row].Then(placed);
  }
  return stream.extent == Extent::kLocal ? placed.Then(layout.partition[rank]) : placed;
}

}  // namespace

absl::StatusOr<TensorCut> CutOfTensor(const ShardPlan& plan, const BatchSpec& spec,
                                      absl::string_view name, int64_t rank, int64_t row) {
  CPSHARD_RETURN_IF_ERROR(ResolveRanks({rank}, plan.num_ranks()).status());
  CPSHARD_ASSIGN_OR_RETURN(const StreamPlan* stream, Find(plan, name));
  CPSHARD_RETURN_IF_ERROR(CheckCut(plan, spec, *stream));
  const auto& view = std::get<ViewOf>(stream->value.from);
  TensorCut cut{.view = &view, .stream = stream};
  if (stream->extent != Extent::kWhole) {
    const absl::Span<const LayoutPlan> layouts = LayoutsOf(plan, *stream);
    cut.chunks = static_cast<int64_t>(layouts.size());
    if (stream->batch_axis >= 0) {
      cut.rows = static_cast<int64_t>(
          std::max({size_t{1}, layouts.front().placement.size(), view.columns.size()}));
    }
  }
  if (row < 0 || row >= cut.rows) {
    return absl::InvalidArgumentError(absl::StrCat("there is no row ", row, " of stream '", name,
                                                   "'; it has the runs of ", cut.rows, " rows"));
  }
  if (stream->extent == Extent::kWhole) return cut;
  for (const LayoutPlan& layout : LayoutsOf(plan, *stream)) {
    const IndexMap columns = Columns(*stream, view, layout, rank, row);
    cut.runs.insert(cut.runs.end(), columns.runs().begin(), columns.runs().end());
  }
  return cut;
}

}  // namespace cpshard::embedded
