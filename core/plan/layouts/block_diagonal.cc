// Block-diagonal packed CP: contract 4.13.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/plan/layouts.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "core/plan/token_bits.h"
#include "core/plan/token_rows.h"

namespace cpshard {
namespace {

constexpr absl::string_view kDropped[] = {"attention_mask", "packed_token_indices", "cu_seqlens",
                                          "max_seqlen"};
constexpr absl::string_view kDeepStack = "_deepstack_visual_embeds.";
constexpr absl::string_view kVisual = "visual_pos_masks";

bool IsCut(const BatchSpec& spec) { return spec.num_ranks() > 1; }

bool HasDeepStack(const BatchSpec& spec) {
  for (const TensorSpec& tensor : spec.tensors) {
    if (absl::StartsWith(tensor.name, kDeepStack)) return true;
  }
  return false;
}

// Floats are filled with 0 whatever their name (T8).
Number FillOf(const TensorSpec& tensor, const SharedOptions& shared) {
  if (IsFloating(tensor.dtype)) return int64_t{0};
  if (tensor.name == "input_ids") return shared.padding_token_id.value_or(0);
  if (tensor.name == "labels") return int64_t{-100};
  return int64_t{0};
}

absl::Status CutStreams(Primary primary, const BatchSpec& spec, const SharedOptions& shared,
                        const TokenRows& rows, RowStreams& streams) {
  for (absl::string_view name : kDropped) streams.Drop(name);
  std::vector<absl::string_view> names = {"labels", "_packed_seq_ids", "loss_mask", kVisual};
  if (primary == Primary::kCut) names.push_back(rows.primary->name);
  for (absl::string_view name : names) {
    if (!spec.Has(name)) continue;
    const TensorSpec* tensor = spec.FindTensor(name);
    const Number fill = tensor == nullptr ? Number(int64_t{0}) : FillOf(*tensor, shared);
    CPSHARD_RETURN_IF_ERROR(streams.CutTokens(name, fill));
  }
  return spec.Has("position_ids") ? streams.CutPositions(int64_t{0}) : absl::OkStatus();
}

absl::Status CheckPadId(Primary primary, const BatchSpec& spec, const SharedOptions& shared,
                        const TokenRows& rows, const RowStreams& streams) {
  const bool pads_ids = primary == Primary::kCut && streams.has_fill() &&
                        rows.primary->name == "input_ids" && !IsFloating(rows.primary->dtype);
  if (!pads_ids || shared.padding_token_id) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'input_ids' of ", rows.length,
                                                 " columns need padding at cp_size ", *spec.cp_size,
                                                 ", but padding_token_id was not given"));
}

// True where a token is of no document: its id is 0. A padding_mask that came in is overwritten.
absl::Status EmitPaddingMask(const BatchSpec& spec, const TokenRows& rows, RowStreams& streams) {
  StreamPlan mask{"padding_mask", DType::kBool, {rows.rows, rows.length}};
  mask.value.op = Op::kIsZero;
  mask.value.cast = DType::kI64;
  const TensorSpec* ids = spec.FindTensor("_packed_seq_ids");
  const TensorSpec* attention = spec.FindTensor("attention_mask");
  if (ids == nullptr && attention != nullptr && attention->dims.size() == 2) ids = attention;
  if (ids != nullptr) {
    CPSHARD_RETURN_IF_ERROR(streams.CheckTokens(*ids));
    mask.dims = ids->dims;
    mask.value.from = ViewOf{ids->name};
  } else if (attention != nullptr && attention->dims.size() == 4) {
    if (IsFloating(attention->dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stream 'attention_mask' ", DTypeName(attention->dtype), DimsString(attention->dims),
          ": the diagonal of a floating mask is no document id; send bool, integers, or "
          "_packed_seq_ids"));
    }
    CPSHARD_RETURN_IF_ERROR(streams.CheckDiagonal(*attention));
    mask.value.from = ViewOf{attention->name, ViewOf::How::kHeadZeroDiagonal};
  } else {
    mask.value = Expression{Generated{{{{0, 0, rows.length}}}}};
  }
  streams.Add(std::move(mask), int64_t{1});
  return absl::OkStatus();
}

// Which rows of the visual embeddings belong to the tokens of each rank.
LayoutPlan VisualRows(const ValueView& visual, const LayoutPlan& tokens) {
  LayoutPlan layout;
  layout.rows = 1;
  int64_t seen = 0;
  const TokenBits is_visual = TokenBits::Of(visual, [](auto value) { return value != 0; });
  for (const IndexMap& local : tokens.partition) {
    const int64_t first = seen;
    const int64_t begin = std::min(local.size() == 0 ? 0 : local.At(0), visual.size());
    seen += is_visual.Count(begin, std::min(begin + local.size(), visual.size()));
    layout.partition.emplace_back();
    layout.partition.back().Append({first, seen - first});
  }
  layout.source_len = layout.padded_len = seen;
  layout.placement = {IndexMap::Identity(seen)};
  return layout;
}

absl::Status CutDeepStack(const BatchSpec& spec, const PlanValues& values, const LayoutPlan& tokens,
                          RowStreams& streams, ShardPlan& plan) {
  if (!spec.Has(kVisual) || !HasDeepStack(spec)) return absl::OkStatus();
  const auto visual = values.find(kVisual);
  if (visual == values.end() || visual->second.dims().size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", kVisual, "' ", DimsString(spec.FindTensor(kVisual)->dims),
                     " says which tokens are visual; send bool [1, S]"));
  }
  LayoutPlan layout = VisualRows(visual->second, tokens);
  for (const TensorSpec& tensor : spec.tensors) {
    if (!absl::StartsWith(tensor.name, kDeepStack)) continue;
    if (tensor.dims.empty() || tensor.dims[0] != layout.source_len) {
      return absl::InvalidArgumentError(
          absl::StrCat("stream '", tensor.name, "' ", DimsString(tensor.dims),
                       " has not one row for each of the ", layout.source_len,
                       " visual tokens of '", kVisual, "'"));
    }
    StreamPlan stream{tensor.name, tensor.dtype, tensor.dims, 0};
    stream.batch_axis = -1;
    stream.layout = 0;
    stream.value.from = ViewOf{tensor.name};
    streams.Add(std::move(stream), int64_t{0});
  }
  plan.others.push_back(std::move(layout));
  return absl::OkStatus();
}

absl::StatusOr<ShardPlan> Plan(Primary primary, const SharedOptions& shared, const BatchSpec& spec,
                               const PlanValues& values) {
  if (!IsCut(spec)) return PlanWhole(spec);
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* tensor, FindPrimary(spec));
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, RowsOf(*tensor));
  if (rows.rows != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stream '", tensor->name, "' ", DimsString(tensor->dims), " has ", rows.rows,
        " rows; layout block_diagonal takes one packed row at cp_size ", *spec.cp_size));
  }
  const int64_t ranks = spec.num_ranks();
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded, RoundUp(rows.length, 2 * ranks, "2 * cp_size"));
  LayoutPlan layout = TailPadded(rows, padded);
  CPSHARD_ASSIGN_OR_RETURN(layout.partition, ContiguousPartition(padded, ranks));
  RowStreams streams(spec, rows, layout);
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  CPSHARD_RETURN_IF_ERROR(CutStreams(primary, spec, shared, rows, streams));
  CPSHARD_RETURN_IF_ERROR(EmitPaddingMask(spec, rows, streams));
  CPSHARD_RETURN_IF_ERROR(CutDeepStack(spec, values, layout, streams, plan));
  CPSHARD_RETURN_IF_ERROR(CheckPadId(primary, spec, shared, rows, streams));
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  layout.report.original_seq_len = rows.length;
  layout.report.padded_seq_len = padded;
  layout.padded_to = absl::StrCat("a multiple of 2 * cp_size = ", 2 * ranks);
  plan.chunks.push_back(std::move(layout));
  return plan;
}

// One rank gets the batch as sent.
absl::StatusOr<PadRule> Padding(const BatchSpec& spec, int64_t tokens) {
  return IsCut(spec) ? PadRows("2 * cp_size", 2)(spec, tokens) : PadRule();
}

std::vector<std::string> Needs(const BatchSpec& spec) {
  const TensorSpec* visual = spec.FindTensor(kVisual);
  if (!IsCut(spec) || !HasDeepStack(spec) || visual == nullptr || IsFloating(visual->dtype)) {
    return {};
  }
  return {std::string(kVisual)};
}

}  // namespace

Sharder BlockDiagonal(Primary primary, SharedOptions shared) {
  return Sharder(
      {.name = "block_diagonal", .needs_mesh = true, .pad_rule = Padding}, std::move(shared),
      [primary](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(primary, shared, spec, values);
      },
      Needs);
}

}  // namespace cpshard
