#include "core/plan/contiguous_rows.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kIgnoreLabel = -100;

// Both names are the layout's own, whichever was sent (contract 4.2 step 6).
constexpr absl::string_view kPrimaries[] = {"input_ids", "inputs_embeds"};

absl::StatusOr<LayoutPlan> LayoutOf(const TokenRows& rows, int64_t cp_size, int64_t multiple) {
  CPSHARD_ASSIGN_OR_RETURN(
      const int64_t divisor,
      CheckedMultiply(cp_size, multiple, "the divisor cp_size * pad_multiple"));
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded,
                           RoundUp(rows.length, divisor, "cp_size * max(pad_multiple, 2)"));
  LayoutPlan layout = TailPadded(rows, padded);
  CPSHARD_ASSIGN_OR_RETURN(layout.partition, ContiguousPartition(padded, cp_size));
  layout.report.original_seq_len = rows.length;
  layout.report.padded_seq_len = padded;
  layout.padded_to =
      absl::StrCat("a multiple of cp_size ", cp_size, " * max(pad_multiple, 2) = ", multiple);
  return layout;
}

}  // namespace

absl::StatusOr<ContiguousRows> ContiguousRows::Begin(const BatchSpec& spec,
                                                     const SharedOptions& shared,
                                                     const ContiguousOptions& options,
                                                     std::vector<ExtraStream> own) {
  return BeginWith(spec, shared, options.primary, std::move(own), [&](const TokenRows& rows) {
    return LayoutOf(rows, *spec.cp_size, std::max<int64_t>(options.pad_multiple, 2));
  });
}

absl::StatusOr<ContiguousRows> ContiguousRows::BeginWith(const BatchSpec& spec,
                                                         const SharedOptions& shared,
                                                         Primary primary_use,
                                                         std::vector<ExtraStream> own,
                                                         const MakeLayout& make_layout) {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* primary, FindPrimary(spec));
  if (!spec.Has("labels") && !spec.Has("loss_mask")) {
    return absl::InvalidArgumentError(
        "the batch has neither 'labels' nor a 'loss_mask' that could stand in for them");
  }
  const bool cut_primary = primary_use == Primary::kCut;
  std::vector<ExtraStream> extras =
      OwnExtras(shared, cut_primary ? absl::MakeConstSpan(kPrimaries)
                                    : absl::Span<const absl::string_view>());
  CPSHARD_RETURN_IF_ERROR(RequireExtras(spec, extras));
  for (ExtraStream& extra : own) {
    const bool overridden =
        std::any_of(extras.begin(), extras.end(),
                    [&](const ExtraStream& callers) { return callers.name == extra.name; });
    if (!overridden && spec.Has(extra.name)) extras.push_back(std::move(extra));
  }
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, RowsOf(*primary));
  CPSHARD_ASSIGN_OR_RETURN(LayoutPlan layout, make_layout(rows));
  ContiguousRows contiguous(spec, shared, rows, std::move(layout));
  contiguous.extras_ = std::move(extras);
  contiguous.cut_primary_ = cut_primary;
  return contiguous;
}

PadRuleFn ContiguousRows::Padding(int64_t pad_multiple) {
  return PadRows("cp_size * max(pad_multiple, 2)", std::max<int64_t>(pad_multiple, 2));
}

absl::Status ContiguousRows::CutAllButPaddingMask() {
  if (cut_primary_) {
    const bool is_ids = rows_.primary->name == "input_ids";
    const int64_t pad_id = is_ids ? shared_.padding_token_id.value_or(0) : 0;
    CPSHARD_RETURN_IF_ERROR(streams_.CutTokens(rows_.primary->name, pad_id));
  }
  CPSHARD_RETURN_IF_ERROR(CutLabels());
  CPSHARD_RETURN_IF_ERROR(streams_.CutPositions(std::nullopt));
  for (const ExtraStream& extra : extras_) CPSHARD_RETURN_IF_ERROR(streams_.CutExtra(extra));
  return absl::OkStatus();
}

// labels, or the loss mask in their place (contract 4.2 step 4), and the loss mask itself.
absl::Status ContiguousRows::CutLabels() {
  if (spec_.Has("labels")) {
    CPSHARD_RETURN_IF_ERROR(streams_.CutTokens("labels", kIgnoreLabel));
    return spec_.Has("loss_mask") ? streams_.CutTokens("loss_mask", int64_t{0}) : absl::OkStatus();
  }
  return streams_.CutTokensAs("loss_mask", "labels", kIgnoreLabel);
}

absl::Status ContiguousRows::Finish(ShardPlan& plan) {
  const bool pads_ids = streams_.has_fill() && cut_primary_ && rows_.primary->name == "input_ids";
  if (pads_ids && !shared_.padding_token_id) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'input_ids' needs ", layout_.padded_len - rows_.length, " padding columns (", rows_.length,
        " -> ", layout_.padded_len, "), but padding_token_id was not given"));
  }
  plan.cp_size = spec_.cp_size;
  CPSHARD_RETURN_IF_ERROR(streams_.Finish(plan));
  plan.chunks.push_back(std::move(layout_));
  return absl::OkStatus();
}

absl::StatusOr<ShardPlan> ContiguousRows::Plan() {
  CPSHARD_RETURN_IF_ERROR(CutAllButPaddingMask());
  CPSHARD_RETURN_IF_ERROR(streams_.CutPaddingMask());
  ShardPlan plan;
  CPSHARD_RETURN_IF_ERROR(Finish(plan));
  return plan;
}

}  // namespace cpshard
