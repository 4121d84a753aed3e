#include "client/cli/explain/shard_files.h"

#include <algorithm>

#include "absl/status/status.h"
#include "core/plan/status_macros.h"

namespace cpshard::explain {

absl::StatusOr<ShardFiles> ShardFiles::Open(std::string dir, std::vector<ShardLayout> layouts) {
  if (layouts.empty()) return absl::InvalidArgumentError("the layouts file holds no layout");
  CPSHARD_ASSIGN_OR_RETURN(const RankFile file, RankFile::Open(dir, layouts.front()));
  CPSHARD_ASSIGN_OR_RETURN(const LayoutTrace::StreamShape shape, ShapeOf(file, layouts.front()));
  CPSHARD_ASSIGN_OR_RETURN(LayoutTrace trace, LayoutTrace::Of(layouts, shape));
  std::map<int64_t, ShardLayout> by_rank;
  for (ShardLayout& layout : layouts) {
    const int64_t rank = layout.cp_rank;
    by_rank.emplace(rank, std::move(layout));
  }
  return ShardFiles(std::move(dir), std::move(by_rank), std::move(trace));
}

absl::StatusOr<TokenValue> ShardFiles::Read(RankFile& file, const TokenStream& stream,
                                            absl::Span<const int64_t> offsets) {
  TokenValue value{stream.spec.name, stream.extent, ElementsOf(stream), {}};
  const int64_t item = ItemSize(stream.spec.dtype);
  const auto count = static_cast<int64_t>(offsets.size());
  value.elements.spec = {stream.spec.name, stream.spec.dtype, {count}};
  CPSHARD_ASSIGN_OR_RETURN(value.elements.buffer, pool_->Allocate(count * item));
  for (int64_t i = 0; i < count; ++i) {
    CPSHARD_ASSIGN_OR_RETURN(const Tensor element,
                             file.ReadElements(stream.index, offsets[i], 1, *pool_));
    std::copy_n(element.buffer.data(), item, value.elements.buffer.data() + i * item);
  }
  return value;
}

absl::StatusOr<std::vector<TokenValue>> ShardFiles::ValuesAt(const TokenPlace& place,
                                                             RankSlot slot) {
  const ShardLayout& layout = layouts_.at(slot.rank);
  CPSHARD_ASSIGN_OR_RETURN(RankFile file, RankFile::Open(dir_, layout));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<TokenStream> streams,
                           TokenStreamsOf(file, layout, trace_));
  std::vector<TokenValue> values;
  for (const TokenStream& stream : streams) {
    const std::vector<int64_t> offsets = OffsetsAt(stream, trace_, place, slot, kShownElements);
    if (offsets.empty()) continue;
    CPSHARD_ASSIGN_OR_RETURN(TokenValue value, Read(file, stream, offsets));
    values.push_back(std::move(value));
  }
  std::sort(values.begin(), values.end(),
            [](const TokenValue& a, const TokenValue& b) { return a.name < b.name; });
  return values;
}

absl::StatusOr<std::optional<TokenValue>> ShardFiles::ValueAt(const std::string& name,
                                                              const TokenPlace& place,
                                                              RankSlot slot) {
  const ShardLayout& layout = layouts_.at(slot.rank);
  CPSHARD_ASSIGN_OR_RETURN(RankFile file, RankFile::Open(dir_, layout));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<TokenStream> streams,
                           TokenStreamsOf(file, layout, trace_));
  for (const TokenStream& stream : streams) {
    if (stream.spec.name != name) continue;
    const std::vector<int64_t> offsets = OffsetsAt(stream, trace_, place, slot, kShownElements);
    if (offsets.empty()) break;
    return Read(file, stream, offsets);
  }
  return std::nullopt;
}

// The caller's tokens of a stream that was not cut, [B, S], put on the columns.
absl::Status ShardFiles::ReadTokens(RankFile& file, const TokenStream& stream, int64_t chunk,
                                    int64_t row, std::vector<int64_t>& columns) {
  const RowShape source = trace_.source();
  const int64_t first = trace_.flattened() ? 0 : row * source.columns;
  const int64_t count = trace_.flattened() ? source.rows * source.columns : source.columns;
  CPSHARD_ASSIGN_OR_RETURN(const Tensor tokens,
                           file.ReadElements(stream.index, first, count, *pool_));
  const ValueView values = ViewValues(tokens);
  const IndexMap& placement = trace_.PlacementOf(chunk, row);
  for (size_t i = 0; i < placement.runs().size(); ++i) {
    const Run& run = placement.runs()[i];
    for (int64_t at = 0; run.source != kFill && at < run.length; ++at) {
      columns[placement.starts()[i] + at] = values[run.source + at];
    }
  }
  return absl::OkStatus();
}

// A rank's part of a row, put on the columns.
absl::Status ShardFiles::ReadPart(RankFile& file, const TokenStream& stream, int64_t rank,
                                  int64_t chunk, int64_t row, std::vector<int64_t>& columns) {
  const std::vector<int64_t>& dims = stream.spec.dims;
  if (Product(dims) == 0) return absl::OkStatus();
  if (stream.by == TokenStream::By::kToken) return ReadTokens(file, stream, chunk, row, columns);
  int64_t line = 0;
  for (int axis = 0; axis < stream.axis; ++axis) {
    int64_t at = 0;  // of further axes the first
    if (stream.row_axis == axis && dims[axis] > 1) at = row;
    if (stream.chunk_axis == axis) at = chunk;
    line = line * dims[axis] + at;
  }
  const int64_t length = dims[stream.axis];
  CPSHARD_ASSIGN_OR_RETURN(const Tensor part,
                           file.ReadElements(stream.index, line * length, length, *pool_));
  const ValueView values = ViewValues(part);
  if (stream.by == TokenStream::By::kColumn) {
    columns = values.ToVector();
    return absl::OkStatus();
  }
  const IndexMap& map = trace_.ColumnsOf(rank);
  int64_t slot = chunk * length;
  const int64_t end = slot + length;
  for (size_t i = map.RunAt(slot); slot < end; ++i) {
    const Run& run = map.runs()[i];
    const int64_t stop = std::min(end, map.starts()[i] + run.length);
    for (; slot < stop; ++slot) {
      const int64_t column = run.source + (slot - map.starts()[i]);
      columns[column - chunk * trace_.padded_len()] = values[slot - chunk * length];
    }
  }
  return absl::OkStatus();
}

// That the shards have as much as their records say: what is made of them is as large as that.
absl::Status ShardFiles::CheckShapes() {
  if (checked_) return absl::OkStatus();
  constexpr int64_t kMaxColumns = Limits().max_batch_bytes / static_cast<int64_t>(sizeof(int64_t));
  if (trace_.padded_len() > kMaxColumns) {
    return absl::FailedPreconditionError(
        absl::StrCat("the layouts are of rows of ", trace_.padded_len(),
                     " columns; a batch has at most ", kMaxColumns));
  }
  for (const auto& [rank, layout] : layouts_) {
    CPSHARD_ASSIGN_OR_RETURN(const RankFile file, RankFile::Open(dir_, layout));
    CPSHARD_ASSIGN_OR_RETURN(const LayoutTrace::StreamShape shape, ShapeOf(file, layout));
    if (shape.rows == trace_.rows() && shape.chunks == trace_.chunks()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "'", file.path(), "' has ", shape.rows, " rows in ", shape.chunks, " chunks, that of rank ",
        layouts_.begin()->first, " ", trace_.rows(), " in ", trace_.chunks()));
  }
  checked_ = true;
  return absl::OkStatus();
}

absl::StatusOr<ShardFiles::Rows> ShardFiles::ReadRow(const std::vector<std::string>& names,
                                                     int64_t chunk, int64_t row) {
  CPSHARD_RETURN_IF_ERROR(CheckShapes());
  Rows rows;
  std::map<std::string, size_t> ranks_with;
  for (const auto& [rank, layout] : layouts_) {
    CPSHARD_ASSIGN_OR_RETURN(RankFile file, RankFile::Open(dir_, layout));
    CPSHARD_ASSIGN_OR_RETURN(const std::vector<TokenStream> streams,
                             TokenStreamsOf(file, layout, trace_));
    for (const TokenStream& stream : streams) {
      const TensorSpec& spec = stream.spec;
      const bool wanted = std::find(names.begin(), names.end(), spec.name) != names.end();
      const bool last = stream.axis + 1 == static_cast<int>(spec.dims.size());
      if (!wanted || !last || IsFloating(spec.dtype)) continue;
      ++ranks_with[spec.name];
      Row& whole = rows[spec.name];
      whole.columns.resize(trace_.padded_len());
      whole.three_axes = spec.dims.size() == 3 && !stream.chunk_axis;
      CPSHARD_RETURN_IF_ERROR(ReadPart(file, stream, rank, chunk, row, whole.columns));
    }
  }
  std::erase_if(rows,
                [&](const auto& entry) { return ranks_with[entry.first] != layouts_.size(); });
  return rows;
}

absl::StatusOr<std::optional<Tensor>> ShardFiles::ReadWhole(const std::string& name) {
  CPSHARD_ASSIGN_OR_RETURN(RankFile file, RankFile::Open(dir_, layouts_.begin()->second));
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorSpec& spec = file.tensors()[i];
    if (spec.name == name && !IsFloating(spec.dtype)) return file.Read(i, *pool_);
  }
  return std::nullopt;
}

}  // namespace cpshard::explain
