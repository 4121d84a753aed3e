// GLM-5-next: contract 4.16.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/document_map.h"
#include "core/plan/layouts.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "core/plan/token_rows.h"

namespace cpshard {
namespace {

constexpr absl::string_view kRowStreams[] = {"input_ids",      "labels",       "position_ids",
                                             "attention_mask", "padding_mask", "_packed_seq_ids"};
constexpr absl::string_view kDropped[] = {"attention_mask",  "_packed_seq_ids", "seq_lens",
                                          "seq_lens_padded", "cu_seqlens",      "cu_seqlens_padded",
                                          "max_seqlen",      "qkv_format"};
constexpr absl::string_view kRecord = "glm5_next_packed_context.";

// Ids of one axis are one row, and so are the streams that are as long (step 1); a map that has not
// two axes then gets one more in front (step 3a).
BatchSpec WithRows(BatchSpec spec) {
  const TensorSpec* ids = spec.FindTensor("input_ids");
  const bool flat = ids != nullptr && ids->dims.size() == 1;
  const int64_t length = flat ? ids->dims[0] : 0;
  for (TensorSpec& tensor : spec.tensors) {
    const bool named = std::find(std::begin(kRowStreams), std::end(kRowStreams), tensor.name) !=
                       std::end(kRowStreams);
    const bool as_long = flat && named && !tensor.dims.empty() && tensor.dims[0] == length;
    if (as_long) tensor.dims.insert(tensor.dims.begin(), 1);
    const bool is_map = tensor.name == "_packed_seq_ids";
    if (is_map && tensor.dims.size() != 2) tensor.dims.insert(tensor.dims.begin(), 1);
  }
  return spec;
}

absl::StatusOr<TokenRows> Rows(const BatchSpec& spec) {
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids != nullptr) return RowsOf(*ids);
  return absl::InvalidArgumentError(
      "layout glm5_next needs 'input_ids' as a tensor; inputs_embeds do not stand in for them");
}

// Present positions are not expanded: one row stays one row (step 5). Pads are 0 (step 6). Three
// axes are refused (D5); more are those of any token-aligned stream.
absl::Status CutPositions(const BatchSpec& spec, const TokenRows& rows, RowStreams& streams) {
  const TensorSpec* positions = spec.FindTensor("position_ids");
  if (positions == nullptr) return streams.CutPositions(int64_t{0});
  const std::vector<int64_t>& dims = positions->dims;
  if (dims.size() > 3) return streams.CutTokens(positions->name, int64_t{0});
  const bool fits =
      dims.size() == 2 && (dims[0] == rows.rows || dims[0] == 1) && dims[1] == rows.length;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stream 'position_ids' ", DimsString(dims), " has not the axes [", rows.rows, ", ",
        rows.length, "] or [1, ", rows.length, "]; layout glm5_next takes no three axes"));
  }
  StreamPlan stream{positions->name, positions->dtype, dims};
  stream.value.from = ViewOf{positions->name};
  streams.Add(std::move(stream), int64_t{0});
  return absl::OkStatus();
}

absl::Status CutStreams(Primary primary, const BatchSpec& spec, const SharedOptions& shared,
                        const TokenRows& rows, RowStreams& streams) {
  for (absl::string_view name : kDropped) streams.Drop(name);
  if (primary == Primary::kCut) {
    CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", shared.padding_token_id.value_or(0)));
  }
  CPSHARD_RETURN_IF_ERROR(CutPositions(spec, rows, streams));
  if (spec.Has("labels")) CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", int64_t{-100}));
  if (spec.Has("loss_mask")) CPSHARD_RETURN_IF_ERROR(streams.CutTokens("loss_mask", int64_t{0}));
  return spec.Has("padding_mask") ? streams.CutTokens("padding_mask", int64_t{1})
                                  : absl::OkStatus();
}

absl::Status CheckPadId(Primary primary, const BatchSpec& spec, const SharedOptions& shared,
                        const TokenRows& rows, const RowStreams& streams) {
  const bool pads_ids = primary == Primary::kCut && streams.has_fill();
  if (!pads_ids || shared.padding_token_id) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'input_ids' of ", rows.length, " columns need padding at cp_size ",
                   spec.num_ranks(), ", but padding_token_id was not given"));
}

absl::StatusOr<ShardPlan> Plan(Primary primary, const SharedOptions& shared, const BatchSpec& sent,
                               const PlanValues& values) {
  const BatchSpec spec = WithRows(sent);
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, Rows(spec));
  const int64_t ranks = spec.num_ranks();
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded, RoundUp(rows.length, ranks, "cp_size"));
  LayoutPlan layout = TailPadded(rows, padded);
  RowStreams streams(spec, rows, layout);
  CPSHARD_RETURN_IF_ERROR(CutStreams(primary, spec, shared, rows, streams));
  CPSHARD_ASSIGN_OR_RETURN(const DocumentMap map,
                           MakeDocumentMap(spec, values, streams, rows, /*boundaries=*/true));
  CPSHARD_RETURN_IF_ERROR(CheckPadId(primary, spec, shared, rows, streams));
  EmitDocumentMap(kRecord, map, spec, padded / ranks, streams);
  streams.outputs().AddScalar(absl::StrCat(kRecord, "original_seq_len"), {rows.length});

  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  if (map.notice) plan.notices.push_back(*map.notice);
  layout.documents = map.documents;
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  CPSHARD_ASSIGN_OR_RETURN(layout.partition, ContiguousPartition(padded, ranks));
  layout.report.original_seq_len = rows.length;
  layout.report.padded_seq_len = padded;
  layout.padded_to = absl::StrCat("a multiple of cp_size ", ranks);
  plan.chunks.push_back(std::move(layout));
  return plan;
}

}  // namespace

Sharder Glm5Next(Primary primary, SharedOptions shared) {
  return Sharder(
      {.name = "glm5_next", .pad_rule = PadRows("cp_size", 1)}, std::move(shared),
      [primary](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(primary, shared, spec, values);
      },
      [](const BatchSpec& spec) { return MapNeeds(WithRows(spec), /*boundaries=*/true); });
}

}  // namespace cpshard
