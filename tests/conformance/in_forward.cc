#include "tests/conformance/in_forward.h"

#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/batch/buffer.h"
#include "core/exec/executor.h"
#include "core/exec/shard.h"
#include "core/plan/in_forward.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

Answer Shard(const Batch& batch, const InForwardOptions& options, std::optional<int64_t> cp_size,
             Executor& executor) {
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan,
                           PlanInForward(batch.tensors.front().spec, options, cp_size));
  std::vector<int64_t> ranks(plan.num_ranks());
  std::iota(ranks.begin(), ranks.end(), 0);
  BufferPool pool;
  CPSHARD_ASSIGN_OR_RETURN(ShardResult result, MakeShards(plan, batch, ranks, executor, pool));
  const LayoutPlan& layout = plan.chunks.front();
  std::vector<RankAnswer> answers(ranks.size());
  for (const int64_t rank : ranks) {
    Batch& answer = answers[rank].batch;
    answer = std::move(result.shards[rank].batch);
    for (Tensor& tensor : answer.tensors) {
      if (tensor.spec.name == "tensor") tensor.spec.name = "local";
    }
    answer.tensors.push_back(IntTensor("local_indices", DType::kI64, {layout.LocalLen(rank)},
                                       layout.partition[rank].Expand()));
    answer.scalars.push_back({"padded_seq_len", layout.padded_len});
  }
  return answers;
}

absl::StatusOr<LibraryCall> Read(InForwardOptions options, const Input& input, Args& args) {
  if (args.Has("seq_dim")) {
    CPSHARD_ASSIGN_OR_RETURN(options.axis, args.TakeInt("seq_dim"));
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::optional<Number> pad, args.TakeNumber("pad_value"));
  options.pad_value = pad.value_or(options.pad_value);
  CPSHARD_RETURN_IF_ERROR(args.TakeBool("grad", false).status());
  CPSHARD_ASSIGN_OR_RETURN(Batch batch, DecodeValues(input.batch, {}));
  const bool one = batch.tensors.size() == 1 && batch.scalars.empty();
  if (!one || batch.tensors.front().spec.name != "tensor") {
    return absl::InvalidArgumentError("the batch must hold one entry, a tensor called 'tensor'");
  }
  const int64_t ranks = input.cp_size.value_or(1);
  CPSHARD_RETURN_IF_ERROR(CheckExpandable("pad_multiple", options.pad_multiple, ranks));
  return LibraryCall([options, batch = std::move(batch), cp_size = input.cp_size](
                         Executor& executor) { return Shard(batch, options, cp_size, executor); });
}

}  // namespace

absl::StatusOr<LibraryCall> ReadInForwardRoundRobin(const Input& input, Args& args) {
  return Read({.layout = InForwardLayout::kRoundRobin}, input, args);
}

absl::StatusOr<LibraryCall> ReadInForwardContiguous(const Input& input, Args& args) {
  InForwardOptions options{.layout = InForwardLayout::kContiguous};
  const Json* multiple = args.Take("pad_multiple");
  if (multiple != nullptr) {
    CPSHARD_ASSIGN_OR_RETURN(options.pad_multiple, args.TakeInt("pad_multiple"));
  }
  return Read(options, input, args);
}

}  // namespace cpshard::conformance
