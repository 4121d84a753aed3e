#include "core/exec/shard.h"

#include <utility>

#include "core/exec/lowering.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Bytes of the block that holds what a rank has for itself.
size_t LocalBytes(const ShardPlan& plan, int64_t rank) {
  size_t bytes = 0;
  for (const StreamPlan& stream : plan.streams) {
    if (stream.extent == Extent::kLocal) {
      bytes = AlignUp(bytes) + NumBytes(OutputSpec(plan, stream, rank));
    }
  }
  return bytes;
}

// The tensor of the batch that the stream is, where every rank gets it as it was sent.
const Tensor* SentWhole(const StreamPlan& stream, const Batch& batch) {
  const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
  if (stream.extent != Extent::kWhole || view == nullptr) return nullptr;
  const Tensor* sent = batch.FindTensor(view->source);
  return IsPlainView(stream, sent->spec.dtype) ? sent : nullptr;
}

}  // namespace

StreamCut CutOf(const ShardPlan& plan, const StreamPlan& stream) {
  return {stream.extent, OutputAxis(plan, stream)};
}

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
  LayoutRecords records(plan, DigestOf(batch));
  ShardResult result;
  result.notices = plan.notices;
  result.executor = std::string(executor.name());
  std::vector<std::byte*> dests(plan.streams.size() * ranks.size(), nullptr);
  std::vector<Buffer> shared(plan.streams.size());
  for (size_t k = 0; k < ranks.size(); ++k) {
    RankShard shard{records.Of(ranks[k]), {{}, ScalarsOf(plan, ranks[k])}, {}, {}};
    CPSHARD_ASSIGN_OR_RETURN(const Buffer block, pool.Allocate(LocalBytes(plan, ranks[k])));
    size_t offset = 0;
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      const StreamPlan& stream = plan.streams[s];
      Tensor tensor{OutputSpec(plan, stream, ranks[k]), {}};
      const size_t bytes = NumBytes(tensor.spec);
      if (const Tensor* sent = SentWhole(stream, batch)) {
        tensor.buffer = sent->buffer;
      } else if (stream.extent == Extent::kLocal) {
        if (bytes > 0) tensor.buffer = block.Slice(offset, bytes);
        dests[s * ranks.size() + k] = tensor.buffer.data();
        offset = AlignUp(offset + bytes);
      } else {
        if (k == 0) {
          CPSHARD_ASSIGN_OR_RETURN(shared[s], pool.Allocate(bytes));
          dests[s * ranks.size()] = shared[s].data();
        }
        tensor.buffer = shared[s];
      }
      shard.batch.tensors.push_back(std::move(tensor));
      shard.cuts.push_back(CutOf(plan, stream));
    }
    result.shards.push_back(std::move(shard));
  }
  CPSHARD_RETURN_IF_ERROR(WriteShards(plan, batch, ranks, dests, executor, pool));
  return result;
}

void AddReport(const ShardPlan& plan, const Batch& batch, ShardResult& result) {
  std::vector<int64_t> ranks;
  for (const RankShard& shard : result.shards) ranks.push_back(shard.layout.cp_rank);
  BatchReport report =
      ReportOf(InspectBatch(plan, SpecOf(batch, plan.cp_size), batch, Detail::kBatch), ranks);
  result.notices = std::move(report.notices);
  result.totals = std::move(report.totals);
  for (size_t k = 0; k < report.loads.size(); ++k) result.shards[k].load = report.loads[k];
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
  CPSHARD_RETURN_IF_ERROR(CheckedLayoutBytes(plan, resolved, limits).status());
  CPSHARD_ASSIGN_OR_RETURN(ShardResult result, MakeShards(plan, batch, resolved, executor, pool));
  AddReport(plan, batch, result);
  return result;
}

}  // namespace cpshard
