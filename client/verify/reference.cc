#include "client/verify/reference.h"

#include <algorithm>
#include <utility>

#include "core/exec/shard.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

std::vector<int64_t> AllRanks(const ShardPlan& plan) {
  std::vector<int64_t> ranks(plan.num_ranks());
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int64_t>(r);
  return ranks;
}

PlanValues ViewAll(const std::vector<std::string>& names, const Batch& batch) {
  PlanValues values;
  for (const std::string& name : names) {
    if (const Tensor* tensor = batch.FindTensor(name)) values[name] = ViewValues(*tensor);
  }
  return values;
}

// The maps of a plan, without its streams.
ShardPlan MapsOf(const ShardPlan& plan) {
  ShardPlan maps;
  maps.cp_size = plan.cp_size;
  maps.chunks = plan.chunks;
  maps.others = plan.others;
  return maps;
}

}  // namespace

std::optional<int64_t> FillOf(const StreamPlan& stream) {
  if (stream.fill.kind != Fill::Kind::kConstant || IsFloating(stream.dtype)) return std::nullopt;
  const auto* bytes = reinterpret_cast<const std::byte*>(&stream.fill.value.bits);
  return ValueView(stream.dtype, {1}, bytes)[0];
}

StreamAxes::StreamAxes(const ShardPlan& plan, const StreamPlan& stream)
    : layouts_(LayoutsOf(plan, stream)), local_(stream.extent == Extent::kLocal) {
  const absl::Span<const int64_t> dims(stream.dims);
  outer_ = Product(dims.first(stream.axis));
  inner_ = Product(dims.subspan(stream.axis + 1));
  if (stream.batch_axis < 0 || stream.batch_axis >= stream.axis) return;
  row_divisor_ = Product(dims.subspan(stream.batch_axis + 1, stream.axis - stream.batch_axis - 1));
  rows_ = dims[stream.batch_axis];
}

int64_t StreamAxes::RowOf(int64_t outer) const {
  return rows_ == 0 ? 0 : outer / row_divisor_ % rows_;
}

bool StreamAxes::SameLane(int64_t outer, int64_t other) const {
  const auto lane = [&](int64_t index) {
    return std::pair(index / row_divisor_ / std::max<int64_t>(rows_, 1), index % row_divisor_);
  };
  return lane(outer) == lane(other);
}

ElementPlace StreamAxes::At(int64_t rank, int64_t element) const {
  const int64_t length = local_ ? layouts_.front().LocalLen(rank) : columns();
  ElementPlace place;
  place.inner = element % inner_;
  place.slot = element / inner_ % length;
  const int64_t before = element / inner_ / length;
  place.column.chunk = before / outer_;
  place.outer = before % outer_;
  place.column.row = RowOf(place.outer);
  place.column.column =
      local_ ? layouts_[place.column.chunk].partition[rank].At(place.slot) : place.slot;
  return place;
}

int64_t StreamAxes::InUncut(const ElementPlace& place) const {
  const int64_t row = place.column.chunk * outer_ + place.outer;
  return (row * columns() + place.column.column) * inner_ + place.inner;
}

absl::StatusOr<Reference> Reference::Make(const Batch& batch, const Sharder& sharder,
                                          std::optional<int64_t> cp_size,
                                          absl::Span<const int64_t> ranks, Executor& executor,
                                          BufferPool& pool) {
  Reference ours;
  ours.batch_ = &batch;
  ours.executor_ = &executor;
  ours.pool_ = &pool;
  const BatchSpec spec = SpecOf(batch, cp_size);
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(spec, Limits()));
  CPSHARD_ASSIGN_OR_RETURN(ours.ranks_, ResolveRanks(ranks, spec.num_ranks()));
  std::sort(ours.ranks_.begin(), ours.ranks_.end());
  CPSHARD_ASSIGN_OR_RETURN(ours.plan_, PlanBatch(sharder, batch, cp_size));
  CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(ours.plan_, ours.ranks_, Limits()).status());
  ours.documents_ = DocumentsOf(ours.plan_, spec, ViewAll(DocumentsNeeds(spec), batch));
  if (!ours.plan_.chunks.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(ours.trace_, LayoutTrace::Of(ours.plan_));
  }
  return ours;
}

Explanation Reference::At(PaddedColumn column) const {
  return Explain(*trace_, documents_, *trace_->OfColumn(column));
}

std::optional<SourceToken> Reference::SourceOf(const PaddedColumn& column) const {
  const LayoutPlan& layout = plan_.chunks[column.chunk];
  const int64_t source = layout.PlacementOf(column.row).At(column.column);
  if (source == kFill) return std::nullopt;
  if (!layout.flattened_from) return SourceToken{column.row, source};
  const int64_t columns = layout.flattened_from->columns;
  return SourceToken{source / columns, source % columns};
}

const DocumentSpan* Reference::DocumentAt(const PaddedColumn& column) const {
  const std::vector<DocumentSpan>& spans = documents_.Of(column.chunk, column.row);
  const auto after =
      std::upper_bound(spans.begin(), spans.end(), column.column,
                       [](int64_t value, const DocumentSpan& span) { return value < span.begin; });
  if (after == spans.begin()) return nullptr;
  const DocumentSpan& span = *(after - 1);
  return column.column - span.begin < span.length ? &span : nullptr;
}

bool Reference::IsPadding(const PaddedColumn& column) const {
  const DocumentSpan* document = DocumentAt(column);
  return document == nullptr || column.column - document->begin >= document->real ||
         !SourceOf(column);
}

bool Reference::MayCutAllRanks() const {
  return CheckedOutputBytes(plan_, AllRanks(plan_), Limits()).ok();
}

absl::StatusOr<std::vector<Tensor>> Reference::CutWith(const ShardPlan& maps,
                                                       const StreamPlan& stream,
                                                       absl::Span<const int64_t> ranks) const {
  // What all ranks hold alike is written once.
  const size_t parts = stream.extent == Extent::kLocal ? ranks.size() : 1;
  std::vector<Tensor> tensors;
  std::vector<std::byte*> dests;
  for (size_t k = 0; k < parts; ++k) {
    Tensor tensor{OutputSpec(maps, stream, ranks[k]), {}};
    CPSHARD_ASSIGN_OR_RETURN(tensor.buffer, pool_->Allocate(NumBytes(tensor.spec)));
    dests.push_back(tensor.buffer.data());
    tensors.push_back(std::move(tensor));
  }
  CPSHARD_RETURN_IF_ERROR(
      WriteShards(maps, *batch_, ranks.first(parts), dests, *executor_, *pool_));
  tensors.resize(ranks.size(), tensors.front());
  return tensors;
}

absl::StatusOr<std::vector<Tensor>> Reference::Cut(const StreamPlan& stream,
                                                   absl::Span<const int64_t> ranks) const {
  ShardPlan maps = MapsOf(plan_);
  maps.streams = {stream};
  return CutWith(maps, stream, ranks);
}

absl::StatusOr<std::vector<Tensor>> Reference::CutBy(
    const StreamPlan& stream, const std::vector<std::vector<IndexMap>>& partitions,
    absl::Span<const int64_t> ranks) const {
  ShardPlan maps = MapsOf(plan_);
  maps.streams = {stream};
  for (size_t c = 0; c < partitions.size(); ++c) maps.chunks[c].partition = partitions[c];
  return CutWith(maps, stream, ranks);
}

absl::StatusOr<Tensor> Reference::Uncut(const StreamPlan& stream) const {
  ShardPlan maps = MapsOf(plan_);
  maps.streams = {stream};
  for (std::vector<LayoutPlan>* layouts : {&maps.chunks, &maps.others}) {
    for (LayoutPlan& layout : *layouts) layout.partition = WholePartition(layout.padded_len, 1);
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Tensor> parts, CutWith(maps, stream, {0}));
  return parts.front();
}

}  // namespace cpshard::verify
