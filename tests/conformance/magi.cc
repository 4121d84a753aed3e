#include "tests/conformance/magi.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/magi_dispatch.h"
#include "core/plan/shard_layout.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

constexpr int64_t kMinChunksPerRank = 8;

RankAnswer PartitionOf(const MagiDispatch& dispatch, size_t rank, int64_t total, bool true_slots) {
  int64_t num_chunks = 0;
  for (const std::vector<int64_t>& chunks : dispatch.chunks_of_rank) {
    num_chunks += static_cast<int64_t>(chunks.size());
  }
  RankAnswer answer;
  answer.batch.scalars = {{"chunk_size", dispatch.chunk_size},
                          {"pad_size", dispatch.pad_size},
                          {"num_chunks", num_chunks}};
  const std::vector<int64_t>& chunks = dispatch.chunks_of_rank[rank];
  for (size_t i = 0; i < chunks.size(); ++i) {
    answer.batch.scalars.push_back({absl::StrCat("chunks_of_rank.", i), chunks[i]});
  }
  std::vector<int64_t> slots = dispatch.partition[rank].Expand();
  const std::vector<int64_t> dims = {static_cast<int64_t>(slots.size())};
  if (true_slots) {
    answer.batch.tensors.push_back(IntTensor("slot_indices(true)", DType::kI64, dims, slots));
  }
  for (int64_t& slot : slots) slot = std::min(slot, total - 1);  // contract 7.4 step 8
  answer.batch.tensors.push_back(IntTensor("position_ids(clamped)", DType::kI64, dims, slots));
  return answer;
}

absl::StatusOr<std::vector<int64_t>> TakeDocuments(const Input& input, Args& args) {
  const Json* list = args.Take("doc_lens");
  const auto documents = list == nullptr ? std::nullopt : ReadInts(*list);
  if (!documents) return absl::InvalidArgumentError("args.doc_lens must be a list of integers");
  int64_t total = 0;
  for (const int64_t document : *documents) {
    total += std::max<int64_t>(document, 0);
    CPSHARD_RETURN_IF_ERROR(CheckExpandable("doc_lens", total, input.cp_size.value_or(1)));
  }
  return *documents;
}

// The indices of a rank, [L] or [1, L].
struct Indices {
  std::vector<int64_t> values;
  bool nested = false;
};

absl::StatusOr<std::vector<Indices>> TakeIndices(Args& args) {
  const absl::Status malformed =
      absl::InvalidArgumentError("args.local_indices must be lists of columns, one per rank");
  const Json* list = args.Take("local_indices");
  if (list == nullptr || !list->is_array() || list->empty()) return malformed;
  std::vector<Indices> ranks;
  for (const Json& element : *list) {
    const bool nested = element.is_array() && element.size() == 1 && element[0].is_array();
    std::optional<std::vector<int64_t>> values = ReadInts(nested ? element[0] : element);
    const bool legal = values && std::none_of(values->begin(), values->end(),
                                              [](int64_t column) { return column < 0; });
    if (!legal || nested != (ranks.empty() ? nested : ranks.front().nested)) return malformed;
    if (!ranks.empty() && values->size() != ranks.front().values.size()) return malformed;
    ranks.push_back({*std::move(values), nested});
  }
  return ranks;
}

Answer Report(const std::vector<Indices>& ranks, int64_t rows, int64_t columns) {
  LayoutPlan layout;
  layout.padded_len = static_cast<int64_t>(ranks.size() * ranks.front().values.size());
  layout.report.padded_seq_len = layout.padded_len;
  layout.report.indices = cpshard::Report::Indices::kI64;
  layout.report.indices_2d = ranks.front().nested;
  ReportMagiRows({rows, columns}, layout.padded_len, layout.report);
  for (const Indices& rank : ranks) {
    layout.partition.emplace_back();
    for (const int64_t column : rank.values) layout.partition.back().Append({column, 1});
  }
  ShardPlan plan;
  plan.cp_size = static_cast<int64_t>(ranks.size());
  plan.chunks.push_back(std::move(layout));
  std::vector<RankAnswer> answers(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    answers[rank].layout = LayoutFor(plan, static_cast<int64_t>(rank), /*batch_digest=*/0);
  }
  return answers;
}

}  // namespace

absl::StatusOr<LibraryCall> ReadMagiPartition(const Input& input, Args& args) {
  CPSHARD_ASSIGN_OR_RETURN(std::vector<int64_t> documents, TakeDocuments(input, args));
  CPSHARD_ASSIGN_OR_RETURN(const int64_t chunk_size, args.TakeInt("chunk_size_arg"));
  CPSHARD_ASSIGN_OR_RETURN(const bool true_slots, args.TakeBool("true_indices", false));
  const int64_t ranks = input.cp_size.value_or(1);
  CPSHARD_RETURN_IF_ERROR(CheckExpandable("chunk_size_arg", chunk_size, ranks));
  return LibraryCall(
      [documents = std::move(documents), chunk_size, true_slots, ranks](Executor&) -> Answer {
        int64_t total = 0;
        for (const int64_t document : documents) total += document;
        CPSHARD_ASSIGN_OR_RETURN(
            const MagiDispatch dispatch,
            DispatchCausal(documents, total, ranks, chunk_size, kMinChunksPerRank));
        std::vector<RankAnswer> answers;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          answers.push_back(PartitionOf(dispatch, rank, total, true_slots));
        }
        return answers;
      });
}

absl::StatusOr<LibraryCall> ReadMagiLayout(const Input& input, Args& args) {
  CPSHARD_ASSIGN_OR_RETURN(std::vector<Indices> ranks, TakeIndices(args));
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, DecodeValues(input.batch, {}));
  const Tensor* ids = batch.FindTensor("input_ids");
  if (ids == nullptr || ids->spec.dims.size() != 2 || input.cp_size.value_or(1) < 1 ||
      static_cast<size_t>(input.cp_size.value_or(1)) != ranks.size()) {
    return absl::InvalidArgumentError(
        "magi_layout needs input_ids [B, S] and one list of local_indices per rank");
  }
  return LibraryCall([ranks = std::move(ranks), dims = ids->spec.dims](Executor&) {
    return Report(ranks, dims[0], dims[1]);
  });
}

}  // namespace cpshard::conformance
