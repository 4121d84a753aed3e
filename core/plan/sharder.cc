#include "core/plan/sharder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Streams that describe documents (decision D18).
constexpr absl::string_view kPackedMetadata[] = {"seq_lens", "seq_lens_padded", "cu_seqlens",
                                                 "cu_seqlens_padded", "_packed_seq_ids"};

absl::Status CheckExtras(const LayoutTraits& traits, const SharedOptions& options) {
  std::set<absl::string_view> names;
  for (const ExtraStream& extra : options.extra_streams) {
    if (extra.name.empty()) {
      return absl::InvalidArgumentError("extra_streams has an entry without a name");
    }
    if (!traits.extras) {
      return absl::InvalidArgumentError(
          absl::StrCat("extra stream '", extra.name, "': layout ", traits.name,
                       " takes no extra streams; contiguous, gemma4 and round_robin do"));
    }
    if (!names.insert(extra.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("extra stream '", extra.name, "' is named twice"));
    }
    if (extra.pad && !traits.extra_pads) {
      return absl::InvalidArgumentError(absl::StrCat(
          "extra stream '", extra.name, "' has pad ", ToString(*extra.pad), ", but layout ",
          traits.name, " fills extra streams with 0; leave the pad out"));
    }
  }
  return absl::OkStatus();
}

absl::Status RefusePackedMetadata(const LayoutTraits& traits, const BatchSpec& spec) {
  std::string found;
  for (absl::string_view name : kPackedMetadata) {
    if (spec.Has(name)) found = std::string(name);
  }
  const Scalar* format = spec.FindScalar("qkv_format");
  if (format != nullptr && *format == Scalar(std::string("thd"))) found = "qkv_format = thd";
  if (found.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the batch has '", found, "', but layout ", traits.name,
      " cannot keep documents apart; thd, mimo, glm_dsa, deepseek_v4, deepseek_v41, gemma4, kimi, "
      "glm5_next, qwen3_8, block_diagonal, magi and document_head_tail can - or leave the document "
      "streams out"));
}

}  // namespace

Sharder::Sharder(LayoutTraits traits, SharedOptions options, PlanFn plan, NeedsFn needs)
    : traits_(std::move(traits)),
      options_(std::move(options)),
      plan_(std::move(plan)),
      needs_(std::move(needs)) {}

std::vector<std::string> Sharder::Needs(const BatchSpec& spec) const {
  return needs_ ? needs_(spec) : std::vector<std::string>();
}

absl::Status Sharder::CheckShared(const BatchSpec& spec) const {
  CPSHARD_RETURN_IF_ERROR(CheckExtras(traits_, options_));
  if (options_.min_padded_len && !traits_.min_padded_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_padded_len ", *options_.min_padded_len, ": layout ", traits_.name,
                     " does not take it; only deepseek_v4 and deepseek_v41 do"));
  }
  if (traits_.needs_mesh && !spec.cp_size) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", traits_.name,
                                                   " needs a mesh: give cp_size (1 is a mesh of "
                                                   "one rank)"));
  }
  if (!traits_.loss_mask && spec.Has("loss_mask")) {
    return absl::InvalidArgumentError(absl::StrCat("the batch has 'loss_mask', which layout ",
                                                   traits_.name, " does not take; leave it out"));
  }
  if (!traits_.packed_metadata) CPSHARD_RETURN_IF_ERROR(RefusePackedMetadata(traits_, spec));
  return absl::OkStatus();
}

absl::StatusOr<ShardPlan> Sharder::Plan(const BatchSpec& spec, const PlanValues& values) const {
  CPSHARD_RETURN_IF_ERROR(CheckShared(spec));
  return plan_(spec, options_, values);
}

absl::StatusOr<PadRule> Sharder::PadRuleOf(const BatchSpec& spec, int64_t tokens) const {
  CPSHARD_RETURN_IF_ERROR(CheckShared(spec));
  PadRule rule;
  if (traits_.pad_rule) {
    CPSHARD_ASSIGN_OR_RETURN(rule, traits_.pad_rule(spec, tokens));
  }
  // A model hands the option on to the layout that it chooses.
  rule.row_minimum = std::max(rule.row_minimum, options_.min_padded_len.value_or(0));
  return rule;
}

}  // namespace cpshard
