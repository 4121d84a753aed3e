// Contiguous: contract 4.2.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/layouts.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "core/plan/token_rows.h"

namespace cpshard {
namespace {

constexpr int64_t kIgnoreLabel = -100;

// Both names are the layout's own, whichever was sent (contract 4.2 step 6).
constexpr absl::string_view kPrimaries[] = {"input_ids", "inputs_embeds"};

absl::StatusOr<int64_t> PaddedLen(int64_t length, int64_t cp_size, int64_t multiple) {
  CPSHARD_ASSIGN_OR_RETURN(
      const int64_t divisor,
      CheckedMultiply(cp_size, multiple, "the divisor cp_size * pad_multiple"));
  return RoundUp(length, divisor, "cp_size * max(pad_multiple, 2)");
}

// labels, or the loss mask in their place (contract 4.2 step 4), and the loss mask itself.
absl::Status CutLabels(const BatchSpec& spec, RowStreams& streams) {
  if (spec.Has("labels")) {
    CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", kIgnoreLabel));
    return spec.Has("loss_mask") ? streams.CutTokens("loss_mask", int64_t{0}) : absl::OkStatus();
  }
  return streams.CutTokensAs("loss_mask", "labels", kIgnoreLabel);
}

absl::StatusOr<ShardPlan> Plan(const ContiguousOptions& options, const SharedOptions& shared,
                               const BatchSpec& spec) {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* primary, FindPrimary(spec));
  if (!spec.Has("labels") && !spec.Has("loss_mask")) {
    return absl::InvalidArgumentError(
        "the batch has neither 'labels' nor a 'loss_mask' that could stand in for them");
  }
  const bool cut_primary = options.primary == Primary::kCut;
  const std::vector<ExtraStream> extras =
      OwnExtras(shared, cut_primary ? absl::MakeConstSpan(kPrimaries)
                                    : absl::Span<const absl::string_view>());
  CPSHARD_RETURN_IF_ERROR(RequireExtras(spec, extras));
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, RowsOf(*primary));
  const int64_t cp_size = *spec.cp_size;
  const int64_t multiple = std::max<int64_t>(options.pad_multiple, 2);
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded, PaddedLen(rows.length, cp_size, multiple));

  RowStreams streams(spec, rows, padded);
  const bool is_ids = rows.primary->name == "input_ids";
  if (cut_primary) {
    const int64_t pad_id = is_ids ? shared.padding_token_id.value_or(0) : 0;
    CPSHARD_RETURN_IF_ERROR(streams.CutTokens(rows.primary->name, pad_id));
  }
  CPSHARD_RETURN_IF_ERROR(CutLabels(spec, streams));
  CPSHARD_RETURN_IF_ERROR(streams.CutPaddingMask());
  CPSHARD_RETURN_IF_ERROR(streams.CutPositions(std::nullopt));
  for (const ExtraStream& extra : extras) CPSHARD_RETURN_IF_ERROR(streams.CutExtra(extra));
  if (padded > rows.length && cut_primary && is_ids && !shared.padding_token_id) {
    return absl::InvalidArgumentError(
        absl::StrCat("'input_ids' needs ", padded - rows.length, " padding columns (", rows.length,
                     " -> ", padded, "), but padding_token_id was not given"));
  }

  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  LayoutPlan layout = TailPadded(rows, padded);
  CPSHARD_ASSIGN_OR_RETURN(layout.partition, ContiguousPartition(padded, cp_size));
  layout.report.original_seq_len = rows.length;
  layout.report.padded_seq_len = padded;
  layout.padded_to =
      absl::StrCat("a multiple of cp_size ", cp_size, " * max(pad_multiple, 2) = ", multiple);
  plan.chunks.push_back(std::move(layout));
  return plan;
}

}  // namespace

Sharder Contiguous(ContiguousOptions options, SharedOptions shared) {
  LayoutTraits traits{.name = "contiguous", .needs_mesh = true, .extras = true, .extra_pads = true};
  return Sharder(std::move(traits), std::move(shared),
                 [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues&) {
                   return Plan(options, shared, spec);
                 });
}

}  // namespace cpshard
