// Kimi Linear and Kimi K3: contract 4.12.
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

constexpr absl::string_view kDropped[] = {
    "attention_mask", "_packed_seq_ids",   "packed_token_indices", "seq_lens",  "seq_lens_padded",
    "cu_seqlens",     "cu_seqlens_padded", "max_seqlen",           "qkv_format"};

absl::StatusOr<TokenRows> Rows(const BatchSpec& spec) {
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids != nullptr) return RowsOf(*ids);
  return absl::InvalidArgumentError(
      "layout kimi needs 'input_ids' as a tensor; inputs_embeds do not stand in for them");
}

// Lengths of one axis are one row's elsewhere; here the reference reads each as a row of its own.
absl::Status CheckLengths(const BatchSpec& spec, const TokenRows& rows) {
  if (MapSourceOf(spec, /*boundaries=*/false) != MapSource::kLengths) return absl::OkStatus();
  for (absl::string_view name : {"seq_lens", "seq_lens_padded"}) {
    const TensorSpec* lengths = spec.FindTensor(name);
    if (lengths == nullptr || lengths->dims.size() != 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", name, "' ", DimsString(lengths->dims),
                     " has one axis; layout kimi takes lengths as [", rows.rows, ", n]"));
  }
  return absl::OkStatus();
}

absl::Status CutStreams(const BatchSpec& spec, const SharedOptions& shared, const TokenRows& rows,
                        RowStreams& streams) {
  for (absl::string_view name : kDropped) streams.Drop(name);
  const TensorSpec* positions = spec.FindTensor("position_ids");
  if (positions != nullptr && positions->dims.size() == 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream 'position_ids' ", DimsString(positions->dims),
                     " has three axes, which layout kimi does not take; send [", rows.rows, ", ",
                     rows.length, "]"));
  }
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", shared.padding_token_id.value_or(0)));
  CPSHARD_RETURN_IF_ERROR(streams.CutPositions(std::nullopt));
  if (spec.Has("labels")) CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", int64_t{-100}));
  if (spec.Has("loss_mask")) CPSHARD_RETURN_IF_ERROR(streams.CutTokens("loss_mask", int64_t{0}));
  return spec.Has("padding_mask") ? streams.CutTokens("padding_mask", int64_t{1})
                                  : absl::OkStatus();
}

absl::StatusOr<ShardPlan> Plan(KimiVariant variant, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, Rows(spec));
  const int64_t ranks = spec.num_ranks();
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded, RoundUp(rows.length, ranks, "cp_size"));
  LayoutPlan layout = TailPadded(rows, padded);
  RowStreams streams(spec, rows, layout);
  CPSHARD_RETURN_IF_ERROR(CutStreams(spec, shared, rows, streams));
  CPSHARD_RETURN_IF_ERROR(CheckLengths(spec, rows));
  CPSHARD_ASSIGN_OR_RETURN(const DocumentMap map,
                           MakeDocumentMap(spec, values, streams, rows, /*boundaries=*/false));
  if (streams.has_fill() && !shared.padding_token_id) {
    return absl::InvalidArgumentError(absl::StrCat("'input_ids' of ", rows.length,
                                                   " columns need padding at cp_size ", ranks,
                                                   ", but padding_token_id was not given"));
  }
  EmitDocumentMap(variant == KimiVariant::kK3 ? "kimi_packed_" : "kimi_packed_context.", map, spec,
                  padded / ranks, streams);

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

Sharder Kimi(KimiVariant variant, SharedOptions shared) {
  return Sharder(
      {.name = "kimi", .pad_rule = PadRows("cp_size", 1)}, std::move(shared),
      [variant](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(variant, shared, spec, values);
      },
      [](const BatchSpec& spec) { return MapNeeds(spec, /*boundaries=*/false); });
}

}  // namespace cpshard
