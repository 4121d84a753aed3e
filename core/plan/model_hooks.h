// What a model's context-parallel hook picks for a batch: contract 3.3, a row of its table each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/plan/layouts.h"
#include "core/plan/sharder.h"

namespace cpshard {

// Whose hook the model has.
enum class ModelFamily {
  kNone,  // the model has no hook, or there is no model
  kDeepseekV4,
  kDeepseekV41,
  kGemma4,  // MoE, E2B/E4B, dense
  kGlmMoeDsa,
  kKimiLinear,
  kKimiK3,
  kQwen3Vl,
  kQwen35,
  kQwen35Moe,
  kStep37,
  kNemotronOmni,
  kMinimaxM3Vl,
  kGlm5Next,
  kMimoV2,  // Flash too
  kQwen38FlashNext,
  kMuseGlimmer,
};

absl::string_view FamilyName(ModelFamily family);  // "deepseek_v4"; "none"

// What a layout follows from, beside the batch and cp_size (contract 3.2, 3.3).
struct ModelFacts {
  ModelFamily family = ModelFamily::kNone;
  std::optional<std::string> backend_attn;         // backend.attn
  std::optional<std::string> attn_implementation;  // the config's; counts without backend_attn
  bool te_attention_injected = false;
  bool has_vision_or_audio_tower = false;
  bool supports_thd = false;
  bool invoke_pre_embed = true;  // false: the hook is not called
  int64_t num_chunks = 1;
  bool dispatcher_hybridep = false;               // backend.dispatcher is hybridep
  std::vector<int64_t> compress_ratios;           // V4 and V4.1: of the active layers
  std::optional<int64_t> image_token_id;          // MiMo, Nemotron-Omni
  std::optional<int64_t> video_token_id;          // MiMo
  std::optional<int64_t> sound_token_id;          // Nemotron-Omni
  std::optional<int64_t> indexer_compress_ratio;  // Qwen3.8-Flash-Next
  std::optional<int64_t> sliding_window;          // Muse-Glimmer
  int64_t tp_size = 1;                            // Qwen3.8-Flash-Next
};

// The closed-form index map beside a layout: what the token verbs go by before a batch was sharded.
enum class ClosedForm { kNone, kIdentity, kRoundRobin, kContiguous };

struct ChosenLayout {
  std::string name;  // as in the options
  Sharder sharder;
  ClosedForm closed_form = ClosedForm::kNone;
};

struct HookResult {
  // Entries that the hook merges into the batch, added to its plan. `spec` is the batch as sent.
  // InvalidArgument, Unimplemented: the hook refuses the values, or the entry cannot be made.
  using Merge =
      std::function<absl::Status(const BatchSpec& spec, const PlanValues& values, ShardPlan& plan)>;

  std::optional<ChosenLayout> chosen;  // absent: the hook leaves the choice to the rungs below it
  std::vector<std::string> nulled;     // entries that it sets to null
  Merge merge;                         // or nothing
  std::vector<std::string> needs;      // streams whose values `merge` reads
};

// InvalidArgument, Unimplemented: what the hook refuses, in its reference's order.
using ModelHook = std::function<absl::StatusOr<HookResult>(
    const ModelFacts& facts, const SharedOptions& shared, const BatchSpec& spec)>;

// Null for kNone.
ModelHook HookOf(ModelFamily family);

// Whether the batch's qkv_format is thd.
bool IsThdBatch(const BatchSpec& spec);

// pad_multiple of DeepSeek V4: the LCM of 2R for R == 4 and R for other ratios R > 0; 1 for none.
// InvalidArgument: it is beyond int64.
absl::StatusOr<int64_t> CompressMultiple(absl::Span<const int64_t> ratios);

// pad_multiple and packed_alignment of DeepSeek V4.1: the LCM of the ratios that are not 0; 1 for
// none. InvalidArgument: it is beyond int64, or a ratio is negative.
absl::StatusOr<int64_t> CompressAlignment(absl::Span<const int64_t> ratios);

}  // namespace cpshard
