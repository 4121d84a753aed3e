#include "core/exec/gather.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/status_macros.h"
#include "core/plan/token_tensor.h"

namespace cpshard {
namespace {

std::string Describe(const TensorSpec& spec) {
  return absl::StrCat("stream '", spec.name, "' ", DTypeName(spec.dtype), DimsString(spec.dims));
}

// All ranks are there, once, and speak of the same batch.
absl::Status CheckLayouts(const std::vector<ShardLayout>& layouts) {
  if (layouts.empty()) return absl::FailedPreconditionError("there is no layout to gather by");
  const ShardLayout& first = layouts.front();
  std::vector<bool> seen(std::clamp<int64_t>(first.cp_size, 0, int64_t{1} << 20));
  for (const ShardLayout& layout : layouts) {
    if (layout.cp_size != first.cp_size || layout.batch_digest != first.batch_digest ||
        layout.padded_seq_len != first.padded_seq_len ||
        layout.original_seq_len != first.original_seq_len ||
        layout.input_row_shape != first.input_row_shape ||
        layout.input_token_stream_positions != first.input_token_stream_positions) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the layouts of ranks ", first.cp_rank, " and ", layout.cp_rank,
          " are not of one batch: cp_size ", first.cp_size, " and ", layout.cp_size, ", digest ",
          first.batch_digest, " and ", layout.batch_digest, ", padded_seq_len ",
          first.padded_seq_len.value_or(-1), " and ", layout.padded_seq_len.value_or(-1)));
    }
    if (layout.cp_rank < 0 || layout.cp_rank >= static_cast<int64_t>(seen.size()) ||
        seen[layout.cp_rank]) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", layout.cp_rank, " is there twice, or beyond cp_size ", first.cp_size));
    }
    seen[layout.cp_rank] = true;
  }
  std::vector<int64_t> missing;
  for (size_t rank = 0; rank < seen.size() && missing.size() < 8; ++rank) {
    if (!seen[rank]) missing.push_back(static_cast<int64_t>(rank));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "a gather needs all ", first.cp_size, " ranks; missing: ", absl::StrJoin(missing, ", ")));
}

// The maps of all ranks over the same padded columns.
struct Partition {
  int64_t columns = 0;
  std::vector<IndexMap> maps;     // as the layouts are ordered
  bool whole_everywhere = false;  // every rank holds every column
};

absl::StatusOr<Partition> ReadPartition(const std::vector<ShardLayout>& layouts) {
  CPSHARD_ASSIGN_OR_RETURN(CapturedMap map, CapturedMapOf(layouts));
  Partition partition{map.columns, std::move(map.maps), false};
  IndexMap all;
  partition.whole_everywhere = layouts.size() > 1 && partition.columns > 0;
  for (const IndexMap& own : partition.maps) {
    partition.whole_everywhere =
        partition.whole_everywhere && own == IndexMap::Identity(partition.columns);
    for (const Run& run : own.runs()) all.Append(run);
  }
  if (partition.whole_everywhere) return partition;
  const absl::StatusOr<IndexMap> inverse = all.Inverse(partition.columns);
  const bool covered = inverse.ok() && std::none_of(inverse->runs().begin(), inverse->runs().end(),
                                                    [](const Run& r) { return r.source == kFill; });
  if (!covered) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the layouts do not cover the ", partition.columns,
        " padded columns once: ", inverse.ok() ? "some are missing" : inverse.status().message()));
  }
  return partition;
}

// The parts differ in the length of `axis` at most.
absl::Status CheckAlike(const std::vector<ShardLayout>& layouts, const std::vector<Tensor>& parts,
                        int64_t axis) {
  const TensorSpec& first = parts.front().spec;
  for (size_t i = 0; i < parts.size(); ++i) {
    const TensorSpec& spec = parts[i].spec;
    std::vector<int64_t> like_first = spec.dims;
    if (spec.dims.size() == first.dims.size()) like_first[axis] = first.dims[axis];
    if (spec.dtype != first.dtype || like_first != first.dims) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(spec), " of rank ", layouts[i].cp_rank, " does not fit ",
                       Describe(first), " of rank ", layouts[0].cp_rank));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSlots(const std::vector<ShardLayout>& layouts, const std::vector<Tensor>& parts,
                        const Partition& partition, int64_t axis) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const TensorSpec& spec = parts[i].spec;
    if (spec.dims[axis] != partition.maps[i].size()) {
      return absl::FailedPreconditionError(
          absl::StrCat(Describe(spec), " of rank ", layouts[i].cp_rank, " has ", spec.dims[axis],
                       " slots on axis ", axis, "; its layout has ", partition.maps[i].size(),
                       " (another --seq-axis, or another batch?)"));
    }
  }
  return absl::OkStatus();
}

// Whether the parts are stacked chunks, [C, L, ...] with L on `axis`: their layout speaks of the
// C * L slots as of one axis. Of several chunks no layout is reported (contract 4.7), so that rows
// of another batch, which the numbers may fit too, are not taken for chunks.
bool AreStacked(const std::vector<ShardLayout>& layouts, const std::vector<Tensor>& parts,
                const Partition& partition, int64_t axis) {
  const ShardLayout& layout = layouts.front();
  if (axis == 0 || parts.front().spec.dims[axis - 1] < 1 || layout.padded_seq_len ||
      layout.original_seq_len || layout.input_row_shape || layout.input_token_stream_positions) {
    return false;
  }
  bool fits_alone = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<int64_t>& dims = parts[i].spec.dims;
    int64_t slots;
    if (__builtin_mul_overflow(dims[axis - 1], dims[axis], &slots) ||
        slots != partition.maps[i].size()) {
      return false;
    }
    fits_alone = fits_alone && dims[axis] == slots;
  }
  return !fits_alone;
}

// Puts the local slots of every rank on the padded columns below `columns`.
absl::StatusOr<Tensor> Scatter(const std::vector<Tensor>& parts, const Partition& partition,
                               int64_t axis, int64_t columns, Executor& executor,
                               BufferPool& pool) {
  Tensor full{parts.front().spec, {}};
  full.spec.dims[axis] = columns;
  CPSHARD_ASSIGN_OR_RETURN(full.buffer, pool.Allocate(NumBytes(full.spec)));
  if (full.buffer.size() == 0) return full;  // however many rows of nothing a peer says there are
  std::vector<Task> tasks;
  for (size_t i = 0; i < parts.size(); ++i) {
    const absl::Span<const int64_t> dims(parts[i].spec.dims);
    CutTask task;
    task.dtype = full.spec.dtype;
    task.outer = Product(dims.subspan(0, axis));
    task.column_bytes = Product(dims.subspan(axis + 1)) * ItemSize(task.dtype);
    task.source = parts[i].buffer.data();
    task.source_stride = dims[axis] * task.column_bytes;
    task.dests = {full.buffer.data()};
    task.dest_strides = {columns * task.column_bytes};
    Moves moves;
    const IndexMap& map = partition.maps[i];
    for (size_t r = 0; r < map.runs().size(); ++r) {
      const Run& run = map.runs()[r];
      if (run.source == kFill || run.source >= columns) continue;
      Move move;
      move.from = map.starts()[r];
      move.to = run.source;
      move.length = std::min(run.length, columns - run.source);
      moves.push_back(move);
    }
    task.moves = std::make_shared<const std::vector<Moves>>(1, std::move(moves));
    tasks.push_back(std::move(task));
  }
  CPSHARD_RETURN_IF_ERROR(executor.Run(tasks));
  return full;
}

// out[b, s] = full[b, positions[b, s]], or `fill` where the token was dropped. Of one shape but for
// the columns (the decision saw to it).
absl::StatusOr<Tensor> TakePositions(const Tensor& full, const IntArray& positions,
                                     const Number& number, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(const Element fill,
                           ConvertFill(number, full.spec.dtype, full.spec.name));
  Tensor out{{full.spec.name, full.spec.dtype, positions.shape}, {}};
  CPSHARD_ASSIGN_OR_RETURN(out.buffer, pool.Allocate(NumBytes(out.spec)));
  const int64_t item = ItemSize(full.spec.dtype);
  const int64_t columns = full.spec.dims[1];
  for (size_t i = 0; i < positions.values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / positions.shape[1];
    const int64_t column = positions.values[i];
    if (column >= columns) {
      return absl::FailedPreconditionError(
          absl::StrCat("position ", column, " of row ", row, " lies beyond ", columns));
    }
    const void* from = column < 0 ? static_cast<const void*>(&fill.bits)
                                  : full.buffer.data() + (row * columns + column) * item;
    std::memcpy(out.buffer.data() + i * item, from, item);
  }
  return out;
}

absl::StatusOr<Tensor> Carry(const GatherTokenSteps<int64_t>& steps,
                             const std::vector<Tensor>& parts, const Partition& partition,
                             const ShardLayout& layout, const GatherOptions& options,
                             Executor& executor, BufferPool& pool) {
  using Trim = GatherTokenSteps<int64_t>::Trim;
  const int64_t columns =
      steps.trim == Trim::kOriginal ? steps.shape[steps.axis] : partition.columns;
  CPSHARD_ASSIGN_OR_RETURN(Tensor full,
                           Scatter(parts, partition, steps.axis, columns, executor, pool));
  if (steps.trim == Trim::kPositions) {
    return TakePositions(full, *layout.input_token_stream_positions, *options.fill, pool);
  }
  full.spec.dims = steps.shape;
  return full;
}

// Stacked chunks, [C, L, ...] on axes `axis` - 1 and `axis`, as [C, T_c, ...]. C divides the
// columns: they are the slots of all ranks, C * L of each.
absl::StatusOr<Tensor> GatherStacked(std::vector<Tensor> parts, const Partition& partition,
                                     int64_t axis, Executor& executor, BufferPool& pool) {
  const int64_t chunks = parts.front().spec.dims[axis - 1];
  for (Tensor& part : parts) {
    std::vector<int64_t>& dims = part.spec.dims;
    dims[axis - 1] *= dims[axis];
    dims.erase(dims.begin() + axis);
  }
  CPSHARD_ASSIGN_OR_RETURN(Tensor full,
                           Scatter(parts, partition, axis - 1, partition.columns, executor, pool));
  full.spec.dims[axis - 1] = chunks;
  full.spec.dims.insert(full.spec.dims.begin() + axis, partition.columns / chunks);
  return full;
}

}  // namespace

absl::StatusOr<Tensor> HeldWhole(const std::vector<Tensor>& parts) {
  for (const Tensor& part : parts) {
    if (part.spec != parts.front().spec ||
        (part.buffer.size() > 0 &&
         std::memcmp(part.buffer.data(), parts.front().buffer.data(), part.buffer.size()) != 0)) {
      return absl::FailedPreconditionError(
          absl::StrCat(Describe(part.spec), ": every rank holds it whole, but not the same bytes"));
    }
  }
  return parts.front();
}

absl::StatusOr<Tensor> Gather(const std::vector<ShardLayout>& layouts,
                              const std::vector<Tensor>& parts, const GatherOptions& options,
                              Executor& executor, BufferPool& pool) {
  CPSHARD_RETURN_IF_ERROR(CheckLayouts(layouts));
  if (parts.size() != layouts.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.size(), " tensors do not go with ", layouts.size(), " layouts"));
  }
  CPSHARD_ASSIGN_OR_RETURN(const Partition partition, ReadPartition(layouts));
  CPSHARD_ASSIGN_OR_RETURN(const TokenLayout<int64_t> says, TokenLayoutOf(layouts.front()));
  const TensorSpec& first = parts.front().spec;
  GatherTokenArgs<int64_t> args{options.seq_axis, options.trim, options.fill.has_value()};
  args.all_slots = partition.columns;
  const auto found = token_verbs::GatherAxis<int64_t>(says, first.dims, args);
  if (const Refusal* refusal = std::get_if<Refusal>(&found)) return StatusFor(*refusal, first.name);
  const int64_t axis = std::get<int64_t>(found);
  CPSHARD_RETURN_IF_ERROR(CheckAlike(layouts, parts, axis));
  if (AreStacked(layouts, parts, partition, axis)) {
    if (options.trim) return ToStatus(token_verbs::NothingToTrimTo());
    return GatherStacked(parts, partition, axis, executor, pool);
  }
  CPSHARD_RETURN_IF_ERROR(CheckSlots(layouts, parts, partition, axis));
  if (partition.whole_everywhere) return HeldWhole(parts);
  const auto decided = DecideGatherToken<int64_t>(says, {partition.columns, {}}, first.dims, args);
  if (const Refusal* refusal = std::get_if<Refusal>(&decided)) {
    return StatusFor(*refusal, first.name);
  }
  return Carry(std::get<GatherTokenSteps<int64_t>>(decided), parts, partition, layouts.front(),
               options, executor, pool);
}

absl::StatusOr<Tensor> GatherStream(const std::vector<RankShard>& shards, absl::string_view name,
                                    GatherOptions options, Executor& executor, BufferPool& pool) {
  std::vector<ShardLayout> layouts;
  std::vector<Tensor> parts;
  bool whole = false;
  for (const RankShard& shard : shards) {
    const Tensor* tensor = shard.batch.FindTensor(name);
    if (tensor == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("the shard of rank ", shard.layout.cp_rank, " has no stream '", name, "'"));
    }
    const StreamCut& cut = shard.cuts[tensor - shard.batch.tensors.data()];
    whole = cut.extent != Extent::kLocal;
    options.seq_axis = cut.seq_axis;
    layouts.push_back(shard.layout);
    parts.push_back(*tensor);
  }
  if (parts.empty()) return absl::NotFoundError("there are no shards to gather");
  return whole ? HeldWhole(parts) : Gather(layouts, parts, options, executor, pool);
}

}  // namespace cpshard
