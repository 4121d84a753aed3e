#include "tests/conformance/token_verbs.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/batch/buffer.h"
#include "core/exec/executor.h"
#include "core/exec/token_verbs.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/layout_arg.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

absl::Status Malformed(absl::string_view what) { return absl::InvalidArgumentError(what); }

struct LayoutCall {
  ShardLayout fields;
  HeldColumns map;
};

absl::StatusOr<IndexMap> MapOf(const std::vector<int64_t>& indices) {
  IndexMap map;
  for (const int64_t index : indices) {
    if (index < 0) return Malformed("args.layout.indices holds a negative index");
    map.Append({index, 1});
  }
  return map;
}

absl::StatusOr<LayoutCall> TakeLayout(const Input& input, Args& args) {
  for (absl::string_view key : {"layout", "map"}) args.Take(key);
  CPSHARD_ASSIGN_OR_RETURN(const LayoutArg layout, ReadLayoutArg(input.args));
  LayoutCall call{layout.fields, {}};
  call.map.cp_size = input.cp_size.value_or(1);
  if (layout.map == "identity") call.map.closed_form = HeldColumns::ClosedForm::kIdentity;
  if (layout.map == "contiguous") call.map.closed_form = HeldColumns::ClosedForm::kContiguous;
  if (layout.map == "round_robin") call.map.closed_form = HeldColumns::ClosedForm::kRoundRobin;
  if (!layout.has_indices()) return call;
  if (static_cast<int64_t>(layout.indices.size()) != call.map.cp_size) {
    return Malformed("args.layout.indices must hold one list per rank");
  }
  CapturedMap captured;
  for (const std::vector<int64_t>& indices : layout.indices) {
    CPSHARD_ASSIGN_OR_RETURN(IndexMap map, MapOf(indices));
    captured.columns += map.size();
    captured.maps.push_back(std::move(map));
  }
  call.map.captured = std::move(captured);
  return call;
}

// The one tensor of the batch that a rank calls the verb with.
absl::StatusOr<Tensor> TensorOfRank(const Input& input, int64_t rank) {
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, DecodeValues(input.batch, {.rank = rank}));
  const Tensor* found = nullptr;
  for (const Tensor& tensor : batch.tensors) {
    if (tensor.spec.name == "weight") continue;
    const bool known = tensor.spec.name == "t" || tensor.spec.name == "local";
    if (!known || found != nullptr) return Malformed("the batch must hold one tensor, t or local");
    found = &tensor;
  }
  if (found == nullptr || !batch.scalars.empty()) return Malformed("the batch must hold a tensor");
  return *found;
}

absl::StatusOr<std::vector<Tensor>> TensorsOfRanks(const Input& input) {
  const int64_t ranks = input.cp_size.value_or(1);
  CPSHARD_RETURN_IF_ERROR(CheckExpandable("layout", 0, ranks));
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    CPSHARD_ASSIGN_OR_RETURN(Tensor part, TensorOfRank(input, rank));
    parts.push_back(std::move(part));
  }
  return parts;
}

// What each rank got, called `name`.
Answer AnswerOf(absl::StatusOr<std::vector<Tensor>> results, absl::string_view name) {
  CPSHARD_RETURN_IF_ERROR(results.status());
  std::vector<RankAnswer> answers(results->size());
  for (size_t rank = 0; rank < results->size(); ++rank) {
    Tensor& result = (*results)[rank];
    result.spec.name = std::string(name);
    answers[rank].batch.tensors.push_back(std::move(result));
  }
  return answers;
}

// The same for every rank.
Answer AnswerOf(const absl::StatusOr<Tensor>& result, size_t ranks, absl::string_view name) {
  CPSHARD_RETURN_IF_ERROR(result.status());
  return AnswerOf(std::vector<Tensor>(ranks, *result), name);
}

constexpr absl::string_view kHalo = "qwen3_8_halo";

// Whether `op` joins whole parts. They differ in what their backward does.
bool JoinsParts(absl::string_view op) {
  for (absl::string_view known :
       {"dsv4", "dsv4_metadata", "dsv41", "glm5_next", "glm_dsa", "kimi", "qwen3_8"}) {
    if (op == known) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<LibraryCall> ReadShardToken(const Input& input, Args& args) {
  CPSHARD_ASSIGN_OR_RETURN(LayoutCall layout, TakeLayout(input, args));
  ShardTokenOptions options;
  if (args.Has("seq_dim")) {
    CPSHARD_ASSIGN_OR_RETURN(options.seq_dim, args.TakeInt("seq_dim"));
  }
  CPSHARD_ASSIGN_OR_RETURN(options.fill, args.TakeNumber("fill"));
  CPSHARD_RETURN_IF_ERROR(args.TakeBool("grad", false).status());
  CPSHARD_ASSIGN_OR_RETURN(Tensor tensor, TensorOfRank(input, 0));
  return LibraryCall(
      [layout = std::move(layout), options, tensor = std::move(tensor)](Executor& executor) {
        BufferPool pool;
        return AnswerOf(
            ShardTokenTensor(layout.fields, layout.map, tensor, options, Limits{}, executor, pool),
            "result");
      });
}

absl::StatusOr<LibraryCall> ReadGatherToken(const Input& input, Args& args) {
  CPSHARD_ASSIGN_OR_RETURN(LayoutCall layout, TakeLayout(input, args));
  GatherOptions options;
  if (args.Has("seq_dim")) {
    CPSHARD_ASSIGN_OR_RETURN(options.seq_axis, args.TakeInt("seq_dim"));
  }
  CPSHARD_ASSIGN_OR_RETURN(options.trim, args.TakeBool("trim", false));
  CPSHARD_ASSIGN_OR_RETURN(options.fill, args.TakeNumber("fill"));
  CPSHARD_ASSIGN_OR_RETURN(std::vector<Tensor> parts, TensorsOfRanks(input));
  return LibraryCall(
      [layout = std::move(layout), options, parts = std::move(parts)](Executor& executor) {
        BufferPool pool;
        return AnswerOf(
            GatherTokenTensor(layout.fields, layout.map, parts, options, Limits{}, executor, pool),
            parts.size(), "result");
      });
}

absl::StatusOr<LibraryCall> ReadGatherSequence(const Input& input, Args& args) {
  const Json* op = args.Take("op");
  if (op == nullptr || !op->is_string()) return Malformed("args.op must be a string");
  CPSHARD_ASSIGN_OR_RETURN(std::vector<Tensor> parts, TensorsOfRanks(input));
  if (*op == std::string(kHalo)) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t history, args.TakeInt("history"));
    return LibraryCall([history, parts = std::move(parts)](Executor& executor) {
      BufferPool pool;
      return AnswerOf(LeftHalos(parts, history, Limits{}, executor, pool), "gathered");
    });
  }
  if (!JoinsParts(op->get<std::string>())) {
    return Malformed(absl::StrCat("args.op ", op->dump(), " is none of the sequence gathers"));
  }
  int64_t axis = 1;
  if (args.Has("dim")) {
    CPSHARD_ASSIGN_OR_RETURN(axis, args.TakeInt("dim"));
  }
  return LibraryCall([axis, parts = std::move(parts)](Executor& executor) {
    BufferPool pool;
    return AnswerOf(GatherSequence(parts, axis, executor, pool), parts.size(), "gathered");
  });
}

}  // namespace cpshard::conformance
