#include <google/protobuf/stubs/logging.h>

#include <vector>

#include "core/exec/gather.h"
#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

constexpr Limits kLimits = {
    .max_tensors = 16, .max_dims = 6, .max_ranks = 16, .max_batch_bytes = 1 << 16};

int64_t Slots(const ShardLayout& layout) {
  int64_t slots = 0;
  for (const Run& run : layout.runs) slots += run.length;
  return slots;
}

// A shard, its layout and the plan say the same, and MakeShards has the same bytes.
void CheckShard(const RankShard& shard, const RankShard& made, const ShardPlan& plan,
                int64_t rank) {
  Must(shard.layout == made.layout, "a layout survives the wire");
  Must(shard.layout.cp_rank == rank && shard.layout.cp_size == plan.num_ranks(), "rank and size");
  Must(made.batch.scalars == ScalarsOf(plan, rank), "every rank's own scalars");
  Must(shard.batch.scalars.size() == plan.scalars.size(), "scalars are in every shard");
  Must(shard.batch.tensors.size() == plan.streams.size(), "a tensor per stream");
  Must(shard.cuts.size() == plan.streams.size(), "a cut per stream");
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    const Tensor& tensor = shard.batch.tensors[s];
    const StreamCut& cut = shard.cuts[s];
    Must(tensor.spec == OutputSpec(plan, plan.streams[s], rank), "the shape that was planned");
    Must(tensor.buffer.size() == static_cast<size_t>(NumBytes(tensor.spec)), "all its bytes");
    Must(tensor.bytes() == made.batch.tensors[s].bytes(), "reply and MakeShards agree");
    Must(cut.extent == plan.streams[s].extent, "extent");
    if (cut.extent == Extent::kLocal && plan.streams[s].layout == kTokens) {
      const int64_t chunks = plan.stacked() ? tensor.spec.dims[cut.seq_axis - 1] : 1;
      Must(chunks * tensor.spec.dims[cut.seq_axis] == Slots(shard.layout),
           "slots as the layout says");
    } else if (cut.extent == Extent::kPadded && shard.layout.padded_seq_len) {
      Must(tensor.spec.dims[cut.seq_axis] == *shard.layout.padded_seq_len, "padded as it says");
    }
  }
}

// Streams that are cut as they stand come back as they were sent.
void CheckGather(const ShardResult& result, const ShardPlan& plan, const Batch& batch,
                 Executor& executor, BufferPool& pool) {
  if (static_cast<int64_t>(result.shards.size()) != plan.num_ranks()) return;
  for (const StreamPlan& stream : plan.streams) {
    const auto full = GatherStream(result.shards, stream.name, {.trim = true}, executor, pool);
    const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
    if (!full.ok() || view == nullptr || view->how != ViewOf::How::kColumns) continue;
    if (!view->columns.empty()) continue;  // shifted
    const Tensor* sent = batch.FindTensor(view->source);
    Must(sent != nullptr, "the stream that the plan reads");
    if (stream.value.op != Op::kNone || stream.value.cast || full->spec != sent->spec) continue;
    Must(full->bytes() == sent->bytes(), "gather gives back what was sent");
  }
}

void CheckBatchSurvives(const Request& request) {
  v1::ShardBatchRequest message;
  Must(EncodeShardBatchRequest(request.batch, request.options, request.cp_size, request.ranks,
                               request.executor, &message)
           .ok(),
       "what was decoded encodes");
  const auto again = DecodeShardBatchRequest(message, kLimits);
  Must(again.ok() && again->ranks == request.ranks, "what was encoded decodes");
  Must(again->executor == request.executor, "the executor survives the wire");
  Must(again->spec.tensors == request.spec.tensors, "specs survive the wire");
  Must(DigestOf(again->batch) == DigestOf(request.batch), "bytes survive the wire");
}

}  // namespace

void RequestTarget(absl::string_view input) {
  static auto& pool = *new BufferPool({.max_bytes = 64 << 20, .max_idle_bytes = 4 << 20});
  static auto& executor = *MakeCpuExecutor().release();
  // Says on stderr what is not UTF-8.
  static const auto logger = google::protobuf::SetLogHandler(nullptr);
  (void)logger;
  v1::ShardBatchRequest message;
  if (!message.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const auto request = DecodeShardBatchRequest(message, kLimits);
  if (!request.ok()) return;
  CheckBatchSurvives(*request);
  const auto sharder = request->options.MakeSharder();
  if (!sharder.ok()) return;
  const auto plan = PlanBatch(*sharder, request->batch, request->cp_size);
  if (!plan.ok() || !CheckedOutputBytes(*plan, request->ranks, kLimits).ok()) return;
  if (!CheckedLayoutBytes(*plan, request->ranks, kLimits).ok()) return;

  v1::ShardBatchReply reply;
  const absl::Status written =
      WriteShardBatchReply(*plan, request->batch, request->ranks, executor, pool, &reply);
  Must(written.ok() || absl::IsResourceExhausted(written), "a plan can be carried out");
  if (!written.ok()) return;
  const auto result = DecodeShardBatchReply(&reply);
  Must(result.ok(), "the reply decodes");
  Must(result->shards.size() == request->ranks.size(), "a shard per rank that was asked for");
  const auto made = MakeShards(*plan, request->batch, request->ranks, executor, pool);
  Must(made.ok(), "MakeShards does what the reply does");
  for (size_t k = 0; k < request->ranks.size(); ++k) {
    CheckShard(result->shards[k], made->shards[k], *plan, request->ranks[k]);
  }
  CheckGather(*result, *plan, request->batch, executor, pool);
}

}  // namespace cpshard::fuzz
