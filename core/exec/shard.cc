#include "core/exec/shard.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/exec/moves.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr size_t Aligned(size_t offset) {
  return (offset + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Bytes of the block that holds what a rank has for itself.
size_t LocalBytes(const ShardPlan& plan, int64_t rank) {
  size_t bytes = 0;
  for (const StreamPlan& stream : plan.streams) {
    if (stream.extent == Extent::kLocal) {
      bytes = Aligned(bytes) + NumBytes(OutputSpec(plan, stream, rank));
    }
  }
  return bytes;
}

// Turns the streams of one plan into tasks.
class Lowering {
 public:
  Lowering(const ShardPlan& plan, const Batch& batch, absl::Span<const int64_t> ranks,
           BufferPool& pool)
      : plan_(plan), batch_(batch), ranks_(ranks), pool_(pool) {}

  absl::Status Add(const StreamPlan& stream, absl::Span<std::byte* const> dests) {
    if (std::all_of(dests.begin(), dests.end(), [](std::byte* dest) { return dest == nullptr; })) {
      return absl::OkStatus();
    }
    CutTask task;
    task.dtype = stream.dtype;
    task.fill = stream.fill.value;
    if (stream.extent == Extent::kAsSent) return AddAsSent(stream, dests, std::move(task));

    const absl::Span<const int64_t> dims(stream.dims);
    task.outer = Product(dims.subspan(0, stream.axis));
    task.column_bytes = Product(dims.subspan(stream.axis + 1)) * ItemSize(stream.dtype);
    if (stream.batch_axis >= 0) {
      task.row_divisor =
          Product(dims.subspan(stream.batch_axis + 1, stream.axis - stream.batch_axis - 1));
    }
    CPSHARD_RETURN_IF_ERROR(AddSource(stream, task));
    task.moves = MovesFor(stream);
    if (stream.extent == Extent::kPadded) {  // the same bytes for everybody who wants them
      for (std::byte* dest : dests) {
        if (dest != nullptr) AddCut(stream, {&dest, 1}, task);
      }
    } else {
      AddCut(stream, dests, std::move(task));
    }
    return absl::OkStatus();
  }

  absl::Span<const Task> tasks() const { return tasks_; }

 private:
  absl::StatusOr<const Tensor*> Find(const ViewOf& view) const {
    const Tensor* tensor = batch_.FindTensor(view.source);
    if (tensor != nullptr) return tensor;
    return absl::InternalError(
        absl::StrCat("the plan reads stream '", view.source, "', which the batch does not have"));
  }

  void AddCut(const StreamPlan& stream, absl::Span<std::byte* const> dests, CutTask task) {
    for (size_t k = 0; k < dests.size(); ++k) {
      const TensorSpec output = OutputSpec(plan_, stream, ranks_[k]);
      task.dests.push_back(dests[k]);
      task.dest_strides.push_back(output.dims[stream.axis] * task.column_bytes);
    }
    tasks_.push_back(std::move(task));
  }

  absl::Status AddAsSent(const StreamPlan& stream, absl::Span<std::byte* const> dests,
                         CutTask task) {
    CPSHARD_ASSIGN_OR_RETURN(const Tensor* tensor, Find(std::get<ViewOf>(stream.value.from)));
    Moves moves;
    for (std::byte* dest : dests) {
      if (dest == nullptr) continue;
      Move move;
      move.dest = static_cast<int32_t>(task.dests.size());
      move.length = 1;
      moves.push_back(move);
      task.dests.push_back(dest);
      task.dest_strides.push_back(0);
    }
    task.source = tensor->buffer.data();
    task.outer = 1;
    task.column_bytes = static_cast<int64_t>(tensor->buffer.size());
    task.moves = std::make_shared<const std::vector<Moves>>(1, std::move(moves));
    tasks_.push_back(std::move(task));
    return absl::OkStatus();
  }

  // Points the task at the source columns; derives them first where the expression computes.
  absl::Status AddSource(const StreamPlan& stream, CutTask& task) {
    const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
    if (view == nullptr) return absl::OkStatus();  // generated: no source
    CPSHARD_ASSIGN_OR_RETURN(const Tensor* tensor, Find(*view));
    const bool computes = stream.value.op != Op::kNone || stream.dtype != tensor->spec.dtype ||
                          view->how == ViewOf::How::kHeadZeroDiagonal;
    task.source = tensor->buffer.data();
    const int64_t row_bytes = stream.dims[stream.axis] * task.column_bytes;
    task.source_stride = view->how == ViewOf::How::kBroadcastRow ? 0 : row_bytes;
    if (!computes) return absl::OkStatus();

    DeriveTask derive;
    derive.source = tensor->buffer.data();
    derive.source_dtype = tensor->spec.dtype;
    derive.dest_dtype = stream.dtype;
    derive.count =
        view->how == ViewOf::How::kBroadcastRow ? NumElements(tensor->spec) : Product(stream.dims);
    derive.cast = stream.value.cast;
    derive.op = stream.value.op;
    derive.operand = stream.value.operand;
    if (view->how == ViewOf::How::kHeadZeroDiagonal) {
      const std::vector<int64_t>& dims = tensor->spec.dims;
      derive.is_diagonal = true;
      derive.diagonal = {dims[1], dims[2], dims[3]};
    }
    CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool_.Allocate(derive.count * ItemSize(stream.dtype)));
    derive.dest = buffer.data();
    task.source = buffer.data();
    derived_.push_back(std::move(buffer));
    tasks_.push_back(std::move(derive));
    return absl::OkStatus();
  }

  std::vector<IndexMap> Partition(Extent extent) const {
    const LayoutPlan& layout = plan_.chunks.front();
    if (extent == Extent::kPadded) return {IndexMap::Identity(layout.padded_len)};
    std::vector<IndexMap> partition;
    for (int64_t rank : ranks_) partition.push_back(layout.partition[rank]);
    return partition;
  }

  // Streams of one geometry share their moves.
  std::shared_ptr<const std::vector<Moves>> MovesFor(const StreamPlan& stream) {
    const LayoutPlan& layout = plan_.chunks.front();
    const Generated* generated = std::get_if<Generated>(&stream.value.from);
    const bool rows_alike = stream.batch_axis < 0 || layout.placement.size() == 1;
    const auto key = std::make_tuple(stream.extent, stream.fill.kind, rows_alike);
    if (generated == nullptr) {
      if (auto it = viewed_.find(key); it != viewed_.end()) return it->second;
    }
    const std::vector<IndexMap> partition = Partition(stream.extent);
    const size_t rows =
        generated != nullptr
            ? std::max(generated->rows.size(), rows_alike ? size_t{1} : layout.placement.size())
        : rows_alike ? 1
                     : layout.placement.size();
    auto moves = std::make_shared<std::vector<Moves>>();
    for (size_t row = 0; row < rows; ++row) {
      const IndexMap& placement = layout.PlacementOf(rows_alike ? 0 : row);
      if (generated == nullptr) {
        moves->push_back(CutMoves(placement, partition, stream.fill.kind));
      } else {
        const std::vector<Segment>& segments =
            generated->rows[generated->rows.size() == 1 ? 0 : row];
        moves->push_back(
            GeneratedMoves(segments, generated->over_padded_columns, placement, partition));
      }
    }
    if (generated == nullptr) viewed_.emplace(key, moves);
    return moves;
  }

  const ShardPlan& plan_;
  const Batch& batch_;
  absl::Span<const int64_t> ranks_;
  BufferPool& pool_;
  std::map<std::tuple<Extent, Fill::Kind, bool>, std::shared_ptr<const std::vector<Moves>>> viewed_;
  std::vector<Buffer> derived_;  // live until the tasks are done
  std::vector<Task> tasks_;
};

}  // namespace

absl::Status WriteShards(const ShardPlan& plan, const Batch& batch, absl::Span<const int64_t> ranks,
                         absl::Span<std::byte* const> dests, Executor& executor, BufferPool& pool) {
  Lowering lowering(plan, batch, ranks, pool);
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    CPSHARD_RETURN_IF_ERROR(
        lowering.Add(plan.streams[s], dests.subspan(s * ranks.size(), ranks.size())));
  }
  return executor.Run(lowering.tasks());
}

absl::StatusOr<ShardResult> MakeShards(const ShardPlan& plan, const Batch& batch,
                                       absl::Span<const int64_t> ranks, Executor& executor,
                                       BufferPool& pool) {
  const uint64_t digest = DigestOf(batch);
  ShardResult result;
  result.notices = plan.notices;
  std::vector<std::byte*> dests(plan.streams.size() * ranks.size(), nullptr);
  std::vector<Buffer> padded(plan.streams.size());
  for (size_t k = 0; k < ranks.size(); ++k) {
    RankShard shard{LayoutFor(plan, ranks[k], digest), {{}, plan.scalars}, {}};
    CPSHARD_ASSIGN_OR_RETURN(const Buffer block, pool.Allocate(LocalBytes(plan, ranks[k])));
    size_t offset = 0;
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      const StreamPlan& stream = plan.streams[s];
      Tensor tensor{OutputSpec(plan, stream, ranks[k]), {}};
      const size_t bytes = NumBytes(tensor.spec);
      if (stream.extent == Extent::kAsSent) {
        tensor.buffer = batch.FindTensor(std::get<ViewOf>(stream.value.from).source)->buffer;
      } else if (stream.extent == Extent::kLocal) {
        if (bytes > 0) tensor.buffer = block.Slice(offset, bytes);
        dests[s * ranks.size() + k] = tensor.buffer.data();
        offset = Aligned(offset + bytes);
      } else {
        if (k == 0) {
          CPSHARD_ASSIGN_OR_RETURN(padded[s], pool.Allocate(bytes));
          dests[s * ranks.size()] = padded[s].data();
        }
        tensor.buffer = padded[s];
      }
      shard.batch.tensors.push_back(std::move(tensor));
      shard.cuts.push_back({stream.extent, stream.axis});
    }
    result.shards.push_back(std::move(shard));
  }
  CPSHARD_RETURN_IF_ERROR(WriteShards(plan, batch, ranks, dests, executor, pool));
  return result;
}

absl::StatusOr<ShardResult> ShardBatch(const Sharder& sharder, const Batch& batch,
                                       std::optional<int64_t> cp_size,
                                       absl::Span<const int64_t> ranks, const Limits& limits,
                                       Executor& executor, BufferPool& pool) {
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(SpecOf(batch, cp_size), limits));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<int64_t> resolved,
                           ResolveRanks(ranks, cp_size.value_or(1)));
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan, PlanBatch(sharder, batch, cp_size));
  CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan, resolved, limits).status());
  return MakeShards(plan, batch, resolved, executor, pool);
}

}  // namespace cpshard
