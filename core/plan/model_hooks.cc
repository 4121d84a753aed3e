#include "core/plan/model_hooks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/merged_entries.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

using Result = absl::StatusOr<HookResult>;

absl::Status Refuse(absl::string_view text) { return absl::InvalidArgumentError(text); }

HookResult Owned(absl::string_view name, Sharder sharder, ClosedForm closed_form) {
  HookResult result;
  result.chosen = ChosenLayout{std::string(name), std::move(sharder), closed_form};
  return result;
}

HookResult AuxOnly(const SharedOptions& shared) {
  return Owned("round_robin", RoundRobin({Primary::kLeaveFull}, shared), ClosedForm::kRoundRobin);
}

absl::Status RequireIds(const BatchSpec& spec) {
  if (spec.Has("input_ids")) return absl::OkStatus();
  return Refuse("the batch has no 'input_ids', which the model's hook needs");
}

std::string AttentionOf(const ModelFacts& facts) {
  return facts.backend_attn ? absl::StrCat("'", *facts.backend_attn, "'") : "not set";
}

Result HookOfDeepseekV4(const ModelFacts& facts, const SharedOptions& shared, const BatchSpec&) {
  CPSHARD_ASSIGN_OR_RETURN(const int64_t multiple, CompressMultiple(facts.compress_ratios));
  return Owned("deepseek_v4", DeepseekV4({multiple}, shared), ClosedForm::kContiguous);
}

Result HookOfDeepseekV41(const ModelFacts& facts, const SharedOptions& shared, const BatchSpec&) {
  CPSHARD_ASSIGN_OR_RETURN(const int64_t multiple, CompressAlignment(facts.compress_ratios));
  return Owned("deepseek_v41", DeepseekV41({multiple, multiple}, shared), ClosedForm::kContiguous);
}

Result HookOfGemma4(const ModelFacts&, const SharedOptions& shared, const BatchSpec& spec) {
  CPSHARD_RETURN_IF_ERROR(RequireIds(spec));
  return Owned("gemma4", Gemma4(shared), ClosedForm::kContiguous);
}

Result HookOfGlmMoeDsa(const ModelFacts& facts, const SharedOptions& shared, const BatchSpec&) {
  if (facts.backend_attn != "tilelang" && facts.backend_attn != "cudnn") {
    return absl::UnimplementedError(
        absl::StrCat("packed context parallelism needs backend.attn tilelang or cudnn; it is ",
                     AttentionOf(facts)));
  }
  return Owned("glm_dsa", GlmDsa({facts.num_chunks}, shared), ClosedForm::kContiguous);
}

Result HookOfKimiLinear(const ModelFacts&, const SharedOptions& shared, const BatchSpec&) {
  return Owned("kimi", Kimi(KimiVariant::kLinear, shared), ClosedForm::kContiguous);
}

Result HookOfKimiK3(const ModelFacts&, const SharedOptions& shared, const BatchSpec& spec) {
  if (!spec.cp_size) {
    return Refuse("the model's hook needs a mesh: give cp_size (1 is a mesh of one rank)");
  }
  return Owned("kimi", Kimi(KimiVariant::kK3, shared), ClosedForm::kContiguous);
}

absl::Status NoPositions(const BatchSpec&, const PlanValues&, ShardPlan&) {
  return absl::UnimplementedError(
      "the batch has no 'position_ids'; the model's own rule (mRoPE) makes them, and no layout "
      "can: send those of the whole rows, [3, B, S]");
}

// The hook of Qwen's models makes mRoPE positions where none are sent; that takes the model. It
// picks a layout all the same.
Result HookOfQwen3Vl(const ModelFacts&, const SharedOptions& shared, const BatchSpec& spec) {
  CPSHARD_RETURN_IF_ERROR(RequireIds(spec));
  HookResult result = AuxOnly(shared);
  result.nulled = {"mm_token_type_ids"};
  if (!spec.Has("position_ids")) result.merge = NoPositions;
  return result;
}

// image_grid_hws, where it is sent alone and with elements, becomes image_grid_thw.
void PromoteGrid(const BatchSpec& spec, HookResult& result) {
  const TensorSpec* grid = spec.FindTensor("image_grid_hws");
  if (grid == nullptr || NumElements(*grid) == 0 || spec.Has("image_grid_thw")) return;
  result.nulled.push_back("image_grid_hws");
  if (result.merge) return;  // refuses the batch
  result.merge = [](const BatchSpec& spec, const PlanValues&, ShardPlan& plan) {
    return AddPromotedGrid(*spec.FindTensor("image_grid_hws"), "image_grid_thw", plan);
  };
}

Result HookOfQwen35(const ModelFacts& facts, const SharedOptions& shared, const BatchSpec& spec) {
  CPSHARD_ASSIGN_OR_RETURN(HookResult result, HookOfQwen3Vl(facts, shared, spec));
  PromoteGrid(spec, result);
  return result;
}

Result HookOfQwen35Moe(const ModelFacts& facts, const SharedOptions& shared,
                       const BatchSpec& spec) {
  CPSHARD_ASSIGN_OR_RETURN(HookResult result, HookOfQwen35(facts, shared, spec));
  const TensorSpec* mask = spec.FindTensor("attention_mask");
  const bool square_mask = mask != nullptr && mask->dims.size() == 4;
  if (spec.FindTensor("_packed_seq_ids") == nullptr && !square_mask) return result;
  if (facts.backend_attn != "sdpa") {
    return Refuse(absl::StrCat("the batch is packed (",
                               square_mask ? "a 4-D attention_mask" : "_packed_seq_ids",
                               "), which needs backend.attn sdpa; it is ", AttentionOf(facts)));
  }
  result.chosen = ChosenLayout{"block_diagonal", BlockDiagonal(Primary::kLeaveFull, shared),
                               ClosedForm::kContiguous};
  return result;
}

Result HookOfStep37(const ModelFacts&, const SharedOptions& shared, const BatchSpec& spec) {
  CPSHARD_RETURN_IF_ERROR(RequireIds(spec));
  return AuxOnly(shared);
}

Result HookOfMinimaxM3Vl(const ModelFacts&, const SharedOptions& shared, const BatchSpec&) {
  return AuxOnly(shared);
}

Result HookOfNemotronOmni(const ModelFacts& facts, const SharedOptions& shared,
                          const BatchSpec& spec) {
  if (!IsThdBatch(spec)) return AuxOnly(shared);
  HookResult result;
  if (!spec.Has("input_ids")) return result;
  if (!facts.image_token_id) return Refuse("a THD batch needs the fact image_token_id");
  result.merge = [image = *facts.image_token_id, sound = facts.sound_token_id](
                     const BatchSpec& spec, const PlanValues&, ShardPlan& plan) {
    CPSHARD_RETURN_IF_ERROR(AddTokenMask(spec, "_nemotron_omni_global_image_mask", image, plan));
    if (!sound) return absl::OkStatus();
    return AddTokenMask(spec, "_nemotron_omni_global_sound_mask", *sound, plan);
  };
  return result;
}

Result HookOfGlm5Next(const ModelFacts&, const SharedOptions& shared, const BatchSpec&) {
  return Owned("glm5_next", Glm5Next(Primary::kLeaveFull, shared), ClosedForm::kContiguous);
}

Result HookOfMimoV2(const ModelFacts& facts, const SharedOptions& shared, const BatchSpec& spec) {
  if (facts.backend_attn != "te") {
    return Refuse(
        absl::StrCat("context parallelism needs backend.attn te; it is ", AttentionOf(facts)));
  }
  if (!IsThdBatch(spec)) {
    return Refuse("context parallelism takes packed batches alone: qkv_format must be thd");
  }
  return Owned("mimo", Mimo({facts.num_chunks, facts.image_token_id, facts.video_token_id}, shared),
               ClosedForm::kNone);
}

Result HookOfQwen38FlashNext(const ModelFacts& facts, const SharedOptions& shared,
                             const BatchSpec&) {
  Qwen38Options options;
  if (facts.indexer_compress_ratio) options.pad_multiple = *facts.indexer_compress_ratio;
  options.tp_size = facts.tp_size;
  return Owned("qwen3_8", Qwen38(options, shared), ClosedForm::kContiguous);
}

Result HookOfMuseGlimmer(const ModelFacts& facts, const SharedOptions& shared,
                         const BatchSpec& spec) {
  if (!IsThdBatch(spec)) return AuxOnly(shared);
  const TensorSpec* lengths = spec.FindTensor("seq_lens");
  if (lengths == nullptr || !IsInteger(lengths->dtype)) {
    return Refuse("a THD batch needs 'seq_lens', the lengths of its documents, as integers");
  }
  if (spec.cp_size && !facts.sliding_window) {
    return Refuse("a THD batch on a mesh needs the fact sliding_window");
  }
  HookResult result;
  result.needs = {"seq_lens"};
  const std::optional<int64_t> window = spec.cp_size ? facts.sliding_window : std::nullopt;
  result.merge = [window](const BatchSpec& spec, const PlanValues& values, ShardPlan& plan) {
    CPSHARD_RETURN_IF_ERROR(AddLongestDocument(values.at("seq_lens"), window,
                                               "_muse_glimmer_thd_max_real_seqlen", plan));
    if (!spec.Has("pixel_values")) return absl::OkStatus();
    return AddSentMask(spec, "vision_mask", "_muse_glimmer_global_vision_mask", plan);
  };
  return result;
}

struct Family {
  ModelFamily family;
  absl::string_view name;
  Result (*hook)(const ModelFacts&, const SharedOptions&, const BatchSpec&);
};

constexpr Family kFamilies[] = {
    {ModelFamily::kNone, "none", nullptr},
    {ModelFamily::kDeepseekV4, "deepseek_v4", HookOfDeepseekV4},
    {ModelFamily::kDeepseekV41, "deepseek_v41", HookOfDeepseekV41},
    {ModelFamily::kGemma4, "gemma4", HookOfGemma4},
    {ModelFamily::kGlmMoeDsa, "glm_moe_dsa", HookOfGlmMoeDsa},
    {ModelFamily::kKimiLinear, "kimi_linear", HookOfKimiLinear},
    {ModelFamily::kKimiK3, "kimi_k3", HookOfKimiK3},
    {ModelFamily::kQwen3Vl, "qwen3_vl", HookOfQwen3Vl},
    {ModelFamily::kQwen35, "qwen3_5", HookOfQwen35},
    {ModelFamily::kQwen35Moe, "qwen3_5_moe", HookOfQwen35Moe},
    {ModelFamily::kStep37, "step_3_7", HookOfStep37},
    {ModelFamily::kNemotronOmni, "nemotron_omni", HookOfNemotronOmni},
    {ModelFamily::kMinimaxM3Vl, "minimax_m3_vl", HookOfMinimaxM3Vl},
    {ModelFamily::kGlm5Next, "glm5_next", HookOfGlm5Next},
    {ModelFamily::kMimoV2, "mimo_v2", HookOfMimoV2},
    {ModelFamily::kQwen38FlashNext, "qwen3_8_flash_next", HookOfQwen38FlashNext},
    {ModelFamily::kMuseGlimmer, "muse_glimmer", HookOfMuseGlimmer},
};

const Family& Find(ModelFamily family) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                       [&](const Family& entry) { return entry.family == family; });
}

absl::Status Accumulate(int64_t ratio, int64_t& multiple) {
  CPSHARD_ASSIGN_OR_RETURN(multiple,
                           CheckedMultiply(multiple / std::gcd(multiple, ratio), ratio,
                                           "the least common multiple of compress_ratios"));
  return absl::OkStatus();
}

}  // namespace

absl::string_view FamilyName(ModelFamily family) { return Find(family).name; }

ModelHook HookOf(ModelFamily family) { return Find(family).hook; }

bool IsThdBatch(const BatchSpec& spec) {
  const Scalar* format = spec.FindScalar("qkv_format");
  return format != nullptr && *format == Scalar(std::string("thd"));
}

absl::StatusOr<int64_t> CompressMultiple(absl::Span<const int64_t> ratios) {
  int64_t multiple = 1;
  for (int64_t ratio : ratios) {
    if (ratio > 0) CPSHARD_RETURN_IF_ERROR(Accumulate(ratio == 4 ? 8 : ratio, multiple));
  }
  return multiple;
}

absl::StatusOr<int64_t> CompressAlignment(absl::Span<const int64_t> ratios) {
  int64_t multiple = 1;
  for (int64_t ratio : ratios) {
    if (ratio < 0) {
      return Refuse(absl::StrCat("compress_ratios has ", ratio, "; a ratio is >= 0"));
    }
    if (ratio > 0) CPSHARD_RETURN_IF_ERROR(Accumulate(ratio, multiple));
  }
  return multiple;
}

}  // namespace cpshard
