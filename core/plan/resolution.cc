#include "core/plan/resolution.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// What the rungs ask (contract 3.2, "Facts computed first").
struct Attention {
  std::string name;  // empty: not set
  bool magi = false, te = false;
  MagiOptions magi_options;
};

Attention AttentionOf(const ModelFacts& facts) {
  Attention attention;
  const std::optional<std::string>& name =
      facts.backend_attn ? facts.backend_attn : facts.attn_implementation;
  attention.name = name.value_or("");
  attention.magi = attention.name == "magi";
  attention.te = attention.name == "te" || facts.te_attention_injected;
  if (facts.backend_attn) attention.magi_options.variant = MagiVariant::kCustom;
  if (facts.has_vision_or_audio_tower) attention.magi_options.domain = MagiDomain::kVlm;
  attention.magi_options.num_chunks = facts.num_chunks;
  return attention;
}

std::string MeshText(const BatchSpec& spec) {
  return spec.cp_size ? absl::StrCat("cp_size is ", *spec.cp_size) : "there is no mesh";
}

// Why the hook is not called; empty when it is (contract 3.2 step 1).
std::string NotCalledBecause(const ModelFacts& facts, const Attention& attention,
                             const BatchSpec& spec, const ModelHook& hook) {
  if (!hook) return "the model has no hook";
  if (!facts.invoke_pre_embed) return "invoke_pre_embed is false, so no hook is called";
  if (attention.magi && attention.magi_options.domain == MagiDomain::kLlm) {
    return "magi takes the place of the hook of a model without vision and audio";
  }
  const bool owns_thd = IsThdBatch(spec) && facts.supports_thd;
  if (spec.num_ranks() > 1 || owns_thd) return "";
  return absl::StrCat("no hook is called, for ", MeshText(spec),
                      " and the model does not take the batch as THD itself");
}

// Step 3, from the second rung on.
void ChooseBelowHook(const ModelFacts& facts, const Attention& attention,
                     const SharedOptions& shared, const BatchSpec& spec, std::string hook_text,
                     Resolution& resolution) {
  const auto choose = [&](absl::string_view name, Sharder sharder, ClosedForm closed_form,
                          std::string reason) {
    resolution.chosen = ChosenLayout{std::string(name), std::move(sharder), closed_form};
    resolution.reason = absl::StrCat(reason, "; ", hook_text);
  };
  if (attention.magi) {
    choose("magi", Magi(attention.magi_options, shared), ClosedForm::kNone,
           absl::StrCat(facts.backend_attn ? "backend.attn" : "attn_implementation", " is magi"));
  } else if (attention.te && IsThdBatch(spec)) {
    choose(
        "thd", Thd({facts.num_chunks}, shared), ClosedForm::kNone,
        absl::StrCat("qkv_format is thd and ",
                     attention.name == "te" ? "the attention is te" : "te attention was injected"));
  } else if (spec.num_ranks() > 1) {
    choose("round_robin", RoundRobin({}, shared), ClosedForm::kRoundRobin, MeshText(spec));
  } else {
    choose("identity", Identity(shared), ClosedForm::kIdentity, MeshText(spec));
  }
}

absl::Status RefuseExtras(const SharedOptions& shared, absl::string_view who) {
  if (shared.extra_streams.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("extra stream '",
                                                 shared.extra_streams.front().name, "': ", who,
                                                 " takes no extra streams; leave them out"));
}

absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

BatchSpec Without(BatchSpec spec, const std::vector<std::string>& names) {
  const auto is_named = [&](const auto& entry) {
    return std::find(names.begin(), names.end(), entry.name) != names.end();
  };
  std::erase_if(spec.tensors, is_named);
  std::erase_if(spec.scalars, is_named);
  return spec;
}

absl::StatusOr<ShardPlan> PlanChosen(const Resolution& resolution, const BatchSpec& spec,
                                     const PlanValues& values) {
  CPSHARD_ASSIGN_OR_RETURN(ShardPlan plan, resolution.chosen.sharder.Plan(
                                               Without(spec, resolution.hook.nulled), values));
  if (resolution.hook.merge) {
    CPSHARD_RETURN_IF_ERROR(resolution.hook.merge(spec, values, plan));
  }
  return plan;
}

// The reference agrees on one length among all ranks of the job here; cpshard is told it (D14).
void NoteLengthSync(const ModelFacts& facts, const SharedOptions& shared, ShardPlan& plan) {
  if (!facts.dispatcher_hybridep || !plan.row_need || shared.min_padded_len) return;
  plan.notices.push_back(
      {"length_sync",
       absl::StrCat("with dispatcher hybridep all groups of a job need rows of one length; this "
                    "one's need ",
                    *plan.row_need, " columns: give the maximum of the groups as min_padded_len")});
}

absl::StatusOr<ShardPlan> Plan(const ModelFacts& facts, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_ASSIGN_OR_RETURN(const Resolution resolution, Resolve(facts, shared, spec));
  absl::StatusOr<ShardPlan> plan = PlanChosen(resolution, spec, values);
  if (!plan.ok()) {
    return Prefixed(
        absl::StrCat("resolved to layout ", resolution.chosen.name, " (", resolution.reason, ")"),
        plan.status());
  }
  plan->choice = Choice{resolution.chosen.name, resolution.reason};
  NoteLengthSync(facts, shared, *plan);
  return plan;
}

// A packed row, as far as a hook looks at it before there is a batch.
BatchSpec PackedRow(int64_t tokens, std::optional<int64_t> cp_size) {
  BatchSpec spec;
  spec.cp_size = cp_size;
  for (const char* name : {"input_ids", "labels", "position_ids"}) {
    spec.tensors.push_back({name, DType::kI64, {1, tokens}});
  }
  for (const char* name : {"seq_lens", "seq_lens_padded"}) {
    spec.tensors.push_back({name, DType::kI64, {1, 1}});
  }
  spec.scalars.push_back({"qkv_format", std::string("thd")});
  return spec;
}

absl::StatusOr<PadRule> Padding(const ModelFacts& facts, const SharedOptions& shared,
                                const BatchSpec& spec, int64_t tokens) {
  CPSHARD_ASSIGN_OR_RETURN(
      const Resolution resolution,
      Resolve(facts, shared, spec.tensors.empty() ? PackedRow(tokens, spec.cp_size) : spec));
  BatchSpec mesh;  // that the layout may refuse the batch is Plan's to say
  mesh.cp_size = spec.cp_size;
  CPSHARD_ASSIGN_OR_RETURN(PadRule rule, resolution.chosen.sharder.PadRuleOf(mesh, tokens));
  rule.choice = Choice{resolution.chosen.name, resolution.reason};
  return rule;
}

std::vector<std::string> Needs(const ModelFacts& facts, const SharedOptions& shared,
                               const BatchSpec& spec) {
  const absl::StatusOr<Resolution> resolution = Resolve(facts, shared, spec);
  if (!resolution.ok()) return {};  // Plan says why
  const HookResult& hook = resolution->hook;
  std::vector<std::string> needs = resolution->chosen.sharder.Needs(Without(spec, hook.nulled));
  for (const std::string& name : hook.needs) {
    if (std::find(needs.begin(), needs.end(), name) == needs.end()) needs.push_back(name);
  }
  return needs;
}

}  // namespace

absl::StatusOr<Resolution> Resolve(const ModelFacts& facts, const SharedOptions& shared,
                                   const BatchSpec& spec, const ModelHook& hook) {
  const Attention attention = AttentionOf(facts);
  std::string hook_text = NotCalledBecause(facts, attention, spec, hook);
  Resolution resolution{ChosenLayout{"identity", Identity(shared), ClosedForm::kIdentity}};
  resolution.hook_called = hook_text.empty();
  if (resolution.hook_called) {
    absl::StatusOr<HookResult> result = hook(facts, shared, spec);
    if (!result.ok()) {
      return Prefixed(absl::StrCat("the hook of model ", FamilyName(facts.family)),
                      result.status());
    }
    resolution.hook = *std::move(result);
    hook_text = "the model's hook leaves the choice open";
  }
  if (IsThdBatch(spec) && (attention.magi || attention.te)) {
    CPSHARD_RETURN_IF_ERROR(RefuseExtras(
        shared, absl::StrCat("attention ", attention.magi ? "magi" : "te", " of a THD batch")));
  }
  if (!resolution.hook.chosen) {
    ChooseBelowHook(facts, attention, shared, spec, std::move(hook_text), resolution);
    return resolution;
  }
  CPSHARD_RETURN_IF_ERROR(RefuseExtras(
      shared, absl::StrCat("layout ", resolution.hook.chosen->name, " of the model's hook")));
  resolution.chosen = *std::exchange(resolution.hook.chosen, std::nullopt);
  resolution.reason = absl::StrCat("the hook of model ", FamilyName(facts.family), " chose it");
  return resolution;
}

absl::StatusOr<Resolution> Resolve(const ModelFacts& facts, const SharedOptions& shared,
                                   const BatchSpec& spec) {
  return Resolve(facts, shared, spec, HookOf(facts.family));
}

Sharder Resolving(ModelFacts facts, SharedOptions shared) {
  const auto known = std::make_shared<const ModelFacts>(std::move(facts));
  SharedOptions options = shared;
  LayoutTraits traits{.name = "model",
                      .extras = true,
                      .extra_pads = true,
                      .min_padded_len = true,
                      .pad_rule = [known, shared](const BatchSpec& spec, int64_t tokens) {
                        return Padding(*known, shared, spec, tokens);
                      }};
  return Sharder(
      std::move(traits), std::move(shared),
      [known](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(*known, shared, spec, values);
      },
      [known, options = std::move(options)](const BatchSpec& spec) {
        return Needs(*known, options, spec);
      });
}

}  // namespace cpshard
