// Round robin (head and tail chunk): contract 4.3, and without the primary 4.4 ("aux-only").
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/layouts.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "core/plan/token_rows.h"

namespace cpshard {
namespace {

// The dtype decides first: a floating stream is filled with 0 whatever its name (T8).
Number FillOf(const BatchSpec& spec, absl::string_view name) {
  const TensorSpec* tensor = spec.FindTensor(name);
  if (tensor == nullptr || IsFloating(tensor->dtype)) return int64_t{0};
  if (name == "labels") return int64_t{-100};
  if (name == "padding_mask") return int64_t{1};
  return int64_t{0};
}

absl::Status CutStreams(const RoundRobinOptions& options, const std::vector<ExtraStream>& extras,
                        const BatchSpec& spec, const TokenRows& rows, RowStreams& streams) {
  streams.Drop("attention_mask");
  const auto cut = [&](absl::string_view name) {
    return streams.CutTokens(name, FillOf(spec, name));
  };
  if (options.primary == Primary::kCut) CPSHARD_RETURN_IF_ERROR(cut(rows.primary->name));
  CPSHARD_RETURN_IF_ERROR(cut("labels"));
  CPSHARD_RETURN_IF_ERROR(streams.CutPositions(int64_t{0}));
  for (absl::string_view name : {"loss_mask", "padding_mask"}) {
    if (spec.Has(name)) CPSHARD_RETURN_IF_ERROR(cut(name));
  }
  for (const ExtraStream& extra : extras) CPSHARD_RETURN_IF_ERROR(streams.CutExtra(extra));
  return absl::OkStatus();
}

absl::StatusOr<ShardPlan> Plan(const RoundRobinOptions& options, const SharedOptions& shared,
                               const BatchSpec& spec) {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* primary, FindPrimary(spec));
  if (!spec.Has("labels")) {
    return absl::InvalidArgumentError(
        "the batch has no 'labels', which round_robin needs; a loss_mask does not stand in here");
  }
  const absl::string_view own_name = primary->name;
  const std::vector<ExtraStream> extras =
      OwnExtras(shared, options.primary == Primary::kCut ? absl::MakeConstSpan(&own_name, 1)
                                                         : absl::Span<const absl::string_view>());
  CPSHARD_RETURN_IF_ERROR(RequireExtras(spec, extras));
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, RowsOf(*primary));
  const int64_t cp_size = *spec.cp_size;
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded, RoundUp(rows.length, 2 * cp_size, "2 * cp_size"));
  LayoutPlan layout = TailPadded(rows, padded);
  RowStreams streams(spec, rows, layout);
  CPSHARD_RETURN_IF_ERROR(CutStreams(options, extras, spec, rows, streams));

  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  CPSHARD_ASSIGN_OR_RETURN(layout.partition, RoundRobinPartition(padded, cp_size));
  layout.report.original_seq_len = rows.length;
  layout.report.padded_seq_len = padded;
  layout.padded_to = absl::StrCat("a multiple of 2 * cp_size = ", 2 * cp_size);
  plan.chunks.push_back(std::move(layout));
  return plan;
}

}  // namespace

Sharder RoundRobin(RoundRobinOptions options, SharedOptions shared) {
  LayoutTraits traits{.name = "round_robin",
                      .needs_mesh = true,
                      .extras = true,
                      .packed_metadata = false,
                      .pad_rule = PadRows("2 * cp_size", 2)};
  return Sharder(std::move(traits), std::move(shared),
                 [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues&) {
                   return Plan(options, shared, spec);
                 });
}

}  // namespace cpshard
