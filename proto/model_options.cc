#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/resolution.h"
#include "proto/layout_options.h"

namespace cpshard {
namespace {

struct FamilyPair {
  v1::Model::Family wire;
  ModelFamily family;
};

constexpr FamilyPair kFamilies[] = {
    {v1::Model::NO_HOOK, ModelFamily::kNone},
    {v1::Model::DEEPSEEK_V4, ModelFamily::kDeepseekV4},
    {v1::Model::DEEPSEEK_V41, ModelFamily::kDeepseekV41},
    {v1::Model::GEMMA4, ModelFamily::kGemma4},
    {v1::Model::GLM_MOE_DSA, ModelFamily::kGlmMoeDsa},
    {v1::Model::KIMI_LINEAR, ModelFamily::kKimiLinear},
    {v1::Model::KIMI_K3, ModelFamily::kKimiK3},
    {v1::Model::QWEN3_VL, ModelFamily::kQwen3Vl},
    {v1::Model::QWEN3_5, ModelFamily::kQwen35},
    {v1::Model::QWEN3_5_MOE, ModelFamily::kQwen35Moe},
    {v1::Model::STEP_3_7, ModelFamily::kStep37},
    {v1::Model::NEMOTRON_OMNI, ModelFamily::kNemotronOmni},
    {v1::Model::MINIMAX_M3_VL, ModelFamily::kMinimaxM3Vl},
    {v1::Model::GLM5_NEXT, ModelFamily::kGlm5Next},
    {v1::Model::MIMO_V2, ModelFamily::kMimoV2},
    {v1::Model::QWEN3_8_FLASH_NEXT, ModelFamily::kQwen38FlashNext},
    {v1::Model::MUSE_GLIMMER, ModelFamily::kMuseGlimmer},
};

ModelFacts FactsOf(const v1::Model& from, ModelFamily family) {
  ModelFacts facts;
  facts.family = family;
  if (from.has_backend_attn()) facts.backend_attn = from.backend_attn();
  if (from.has_attn_implementation()) facts.attn_implementation = from.attn_implementation();
  facts.te_attention_injected = from.te_attention_injected();
  facts.has_vision_or_audio_tower = from.has_vision_or_audio_tower();
  facts.supports_thd = from.supports_thd();
  if (from.has_invoke_pre_embed()) facts.invoke_pre_embed = from.invoke_pre_embed();
  if (from.has_num_chunks()) facts.num_chunks = from.num_chunks();
  facts.dispatcher_hybridep = from.dispatcher_hybridep();
  facts.compress_ratios.assign(from.compress_ratios().begin(), from.compress_ratios().end());
  if (from.has_image_token_id()) facts.image_token_id = from.image_token_id();
  if (from.has_video_token_id()) facts.video_token_id = from.video_token_id();
  if (from.has_sound_token_id()) facts.sound_token_id = from.sound_token_id();
  if (from.has_indexer_compress_ratio()) {
    facts.indexer_compress_ratio = from.indexer_compress_ratio();
  }
  if (from.has_sliding_window()) facts.sliding_window = from.sliding_window();
  if (from.has_tp_size()) facts.tp_size = from.tp_size();
  return facts;
}

}  // namespace

absl::StatusOr<Sharder> MakeModel(const v1::ShardingOptions& message, SharedOptions shared) {
  const v1::Model& model = message.model();
  for (const FamilyPair& pair : kFamilies) {
    if (pair.wire != model.family()) continue;
    return Resolving(FactsOf(model, pair.family), std::move(shared));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("options: model has the unknown family ", static_cast<int>(model.family())));
}

}  // namespace cpshard
