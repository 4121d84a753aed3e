// The order of contract 3.2, by the ids of its verified cases, and what holds around it. The table
// of contract 3.3 is in model_hooks_test.cc.
#include "core/plan/resolution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum class Hook { kNone, kOwnsLayout, kLeavesOpen };

// What the reference did: layout ("model-owned" for the hook's), closed-form map, calls of the
// hook.
struct Outcome {
  std::string layout;
  ClosedForm closed_form = ClosedForm::kNone;
  int hook_calls = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << outcome.layout << ", map " << static_cast<int>(outcome.closed_form) << ", calls "
       << outcome.hook_calls;
}

const Outcome kIdentity{"identity", ClosedForm::kIdentity, 0};
const Outcome kRoundRobin{"round_robin", ClosedForm::kRoundRobin, 0};
const Outcome kThd{"thd", ClosedForm::kNone, 0};
const Outcome kMagi{"magi", ClosedForm::kNone, 0};
const Outcome kModelOwned{"model-owned", ClosedForm::kContiguous, 1};
const Outcome kRefused{"InvalidArgument", ClosedForm::kNone, 0};

Outcome Calls(Outcome outcome, int calls) {
  outcome.hook_calls = calls;
  return outcome;
}

struct Case {
  std::string id;
  std::optional<int64_t> cp_size;
  bool thd = false;
  Hook hook = Hook::kNone;
  ModelFacts facts;
  bool extras = false;
  Outcome expected;
};

ModelFacts Attn(const std::string& backend_attn) {
  ModelFacts facts;
  facts.backend_attn = backend_attn;
  return facts;
}

ModelFacts With(ModelFacts facts, bool ModelFacts::*fact, bool value = true) {
  facts.*fact = value;
  return facts;
}

BatchSpec BatchOf(std::optional<int64_t> cp_size, bool thd) {
  BatchSpec spec = TokenBatch(1, 8);
  spec.cp_size = cp_size;
  if (thd) spec.scalars.push_back({"qkv_format", std::string("thd")});
  return spec;
}

Outcome OutcomeOf(const Case& c) {
  int calls = 0;
  const ModelHook counting = [&](const ModelFacts&, const SharedOptions& shared, const BatchSpec&) {
    ++calls;
    HookResult result;
    if (c.hook == Hook::kOwnsLayout) {
      result.chosen = ChosenLayout{"model-owned", Contiguous({}, shared), ClosedForm::kContiguous};
    }
    return absl::StatusOr<HookResult>(result);
  };
  SharedOptions shared;
  if (c.extras) shared.extra_streams = {{"route"}};
  const absl::StatusOr<Resolution> resolution = Resolve(c.facts, shared, BatchOf(c.cp_size, c.thd),
                                                        c.hook == Hook::kNone ? nullptr : counting);
  if (!resolution.ok()) {
    EXPECT_EQ(resolution.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(resolution.status().message()), HasSubstr("route"));
    return Calls(kRefused, calls);
  }
  EXPECT_EQ(resolution->hook_called, calls == 1);
  return {resolution->chosen.name, resolution->chosen.closed_form, calls};
}

class VerifiedCase : public ::testing::TestWithParam<Case> {};

TEST_P(VerifiedCase, ResolvesAsTheReferenceDoes) {
  EXPECT_EQ(OutcomeOf(GetParam()), GetParam().expected);
}

constexpr auto kNoMesh = std::nullopt;
const ModelFacts kNoFacts;
const ModelFacts kMagiVlm = With(Attn("magi"), &ModelFacts::has_vision_or_audio_tower);

INSTANTIATE_TEST_SUITE_P(
    Contract32, VerifiedCase,
    ::testing::Values(
        Case{"Y1", kNoMesh, false, Hook::kNone, kNoFacts, false, kIdentity},
        Case{"Y2", 1, false, Hook::kNone, kNoFacts, false, kIdentity},
        Case{"Y3", 2, false, Hook::kNone, kNoFacts, false, kRoundRobin},
        Case{"Y4", 2, true, Hook::kNone, kNoFacts, false, kRoundRobin},
        Case{"Y5", 2, false, Hook::kOwnsLayout, kNoFacts, false, kModelOwned},
        Case{"Y6", 2, false, Hook::kOwnsLayout,
             With(kNoFacts, &ModelFacts::invoke_pre_embed, false), false, kRoundRobin},
        Case{"Y7", 1, false, Hook::kOwnsLayout, kNoFacts, false, kIdentity},
        Case{"Y8", 1, true, Hook::kOwnsLayout, With(kNoFacts, &ModelFacts::supports_thd), false,
             kModelOwned},
        Case{"Y10", 1, true, Hook::kOwnsLayout, Attn("sdpa"), false, kIdentity},
        Case{"Y11", 1, true, Hook::kNone, Attn("te"), false, kThd},
        Case{"Y12", kNoMesh, true, Hook::kNone, Attn("te"), false, kThd},
        Case{"Y13", 2, true, Hook::kNone, Attn("te"), false, kThd},
        Case{"Y14", 2, true, Hook::kNone, With(kNoFacts, &ModelFacts::te_attention_injected), false,
             kThd},
        Case{"Y15", 2, false, Hook::kNone, Attn("te"), false, kRoundRobin},
        Case{"Y19", 1, false, Hook::kNone, Attn("magi"), false, kMagi},
        Case{"Y20", kNoMesh, false, Hook::kNone, Attn("magi"), false, kMagi},
        Case{"Y21", 2, false, Hook::kOwnsLayout, kMagiVlm, false, kModelOwned},
        Case{"Y22", 2, false, Hook::kNone, kMagiVlm, false, kMagi},
        Case{"Y23", 2, true, Hook::kLeavesOpen, Attn("te"), false, Calls(kThd, 1)},
        Case{"Y24", 2, false, Hook::kLeavesOpen, Attn("sdpa"), false, Calls(kRoundRobin, 1)},
        Case{"Y25", 2, true, Hook::kNone, Attn("te"), true, kRefused},
        Case{"Y26", 2, true, Hook::kOwnsLayout, Attn("te"), true, Calls(kRefused, 1)},
        // The reference ignores the names in silence; D13 refuses them.
        Case{"Y27", 2, false, Hook::kOwnsLayout, kNoFacts, true, Calls(kRefused, 1)}),
    [](const auto& info) { return info.param.id; });

// The cases of the contract's rules that the corpus has no id for.
INSTANTIATE_TEST_SUITE_P(
    Contract32Rules, VerifiedCase,
    ::testing::Values(
        Case{"TheModelsOwnLayoutGoesBeforeTeOnAThdBatch", 2, true, Hook::kOwnsLayout, Attn("te"),
             false, kModelOwned},
        Case{"MagiReplacesTheHookOfATextModel", 2, false, Hook::kOwnsLayout, Attn("magi"), false,
             kMagi},
        Case{"MagiReplacesTheHookOfATextModelThatTakesThd", 1, true, Hook::kOwnsLayout,
             With(Attn("magi"), &ModelFacts::supports_thd), false, kMagi},
        Case{"MagiGoesBeforeTe", 2, true, Hook::kNone,
             With(Attn("magi"), &ModelFacts::te_attention_injected), false, kMagi},
        Case{"AModelThatTakesThdIsNotAskedWithoutAThdBatch", 1, false, Hook::kOwnsLayout,
             With(kNoFacts, &ModelFacts::supports_thd), false, kIdentity},
        Case{"AModelThatTakesThdIsAskedWithoutAMesh", kNoMesh, true, Hook::kOwnsLayout,
             With(kNoFacts, &ModelFacts::supports_thd), false, kModelOwned},
        Case{"InvokePreEmbedCountsForAModelThatTakesThd", 1, true, Hook::kOwnsLayout,
             With(With(kNoFacts, &ModelFacts::supports_thd), &ModelFacts::invoke_pre_embed, false),
             false, kIdentity},
        Case{"ExtrasOfMagiOnAThdBatchAreRefused", 2, true, Hook::kNone, Attn("magi"), true,
             kRefused},
        Case{"ExtrasGoToRoundRobin", 2, false, Hook::kLeavesOpen, kNoFacts, true,
             Calls(kRoundRobin, 1)}),
    [](const auto& info) { return info.param.id; });

// --- which attention counts ----------------------------------------------------------------------

std::string LayoutOf(const ModelFacts& facts, const BatchSpec& spec) {
  const absl::StatusOr<Resolution> resolution = Resolve(facts, {}, spec);
  EXPECT_TRUE(resolution.ok()) << resolution.status();
  return resolution.ok() ? resolution->chosen.name : "";
}

TEST(Resolution, TheConfigsAttentionCountsWhereTheBackendStatesNone) {
  ModelFacts facts;
  facts.attn_implementation = "te";
  EXPECT_EQ(LayoutOf(facts, BatchOf(2, true)), "thd");
  facts.backend_attn = "sdpa";
  EXPECT_EQ(LayoutOf(facts, BatchOf(2, true)), "round_robin");
}

TEST(Resolution, MagiOfTheConfigTakesOneRowAndMagiOfTheBackendLeavesItAlone) {
  ModelFacts hf;
  hf.attn_implementation = "magi";
  const BatchSpec batch = BatchOf(1, false);
  EXPECT_FALSE(PlanOf(Resolving(hf), batch).chunks.empty());  // 7.2: dispatched
  const ShardPlan custom = PlanOf(Resolving(Attn("magi")), batch);
  EXPECT_TRUE(custom.chunks.empty());  // 7.1: untouched
  EXPECT_EQ(StreamOf(custom, "input_ids").extent, Extent::kWhole);
}

TEST(Resolution, NumChunksReachesTheConversionOfTeAndOfMagi) {
  for (const char* attn : {"te", "magi"}) {
    ModelFacts facts = Attn(attn);
    facts.num_chunks = 2;
    PackedBatch batch(2, 4);
    batch.Cp(1).Real({{4}, {4}}).Padded({{4}, {4}}).SetScalar("qkv_format", std::string("thd"));
    const absl::StatusOr<ShardPlan> plan = batch.PlanBy(Resolving(facts));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->chunks.size(), 2u) << attn;
  }
}

// --- what is reported ----------------------------------------------------------------------------

TEST(Resolving, PlansAsTheChosenLayoutDoesAndSaysWhichItIs) {
  const BatchSpec batch = TokenBatch(2, 6);
  ShardPlan plan = PlanOf(Resolving({}), batch);
  ASSERT_TRUE(plan.choice.has_value());
  EXPECT_EQ(plan.choice->layout, "round_robin");
  EXPECT_THAT(plan.choice->reason, HasSubstr("cp_size is 2"));
  plan.choice.reset();
  EXPECT_EQ(plan, PlanOf(RoundRobin({}), batch));
}

TEST(Resolving, SaysWhatWasChosenWhenTheLayoutRefusesTheBatch) {
  // D18: round robin is the choice for a THD batch without te, and refuses it.
  const BatchSpec batch = BatchOf(2, true);
  const absl::Status status = Resolving(Attn("sdpa")).Plan(batch, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("resolved to layout round_robin"));
  EXPECT_THAT(message, HasSubstr("cannot keep documents apart"));
}

TEST(Resolving, KeepsTheStatusCodeOfTheLayout) {
  ModelFacts facts;
  facts.family = ModelFamily::kQwen38FlashNext;
  facts.tp_size = 2;
  const absl::Status status = Resolving(facts).Plan(TokenBatch(1, 16), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("resolved to layout qwen3_8"));
}

TEST(Resolving, NamesNoLayoutWhereTheHookRefuses) {
  ModelFacts facts;
  facts.family = ModelFamily::kGlmMoeDsa;
  const absl::Status status = Resolving(facts).Plan(TokenBatch(1, 16), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("glm_moe_dsa"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("resolved to")));
}

TEST(Resolving, TellsWhyNoHookWasCalled) {
  ModelFacts facts;
  facts.family = ModelFamily::kGemma4;
  EXPECT_THAT(Resolve(facts, {}, BatchOf(1, false))->reason, HasSubstr("cp_size is 1"));
  EXPECT_THAT(Resolve(facts, {}, BatchOf(std::nullopt, false))->reason, HasSubstr("no mesh"));
  facts.invoke_pre_embed = false;
  EXPECT_THAT(Resolve(facts, {}, BatchOf(2, false))->reason, HasSubstr("invoke_pre_embed"));
  EXPECT_THAT(Resolve({}, {}, BatchOf(2, false))->reason, HasSubstr("has no hook"));
}

TEST(Resolving, GivesExtraStreamsToRoundRobinAndRefusesThemAtIdentity) {
  SharedOptions shared;
  shared.extra_streams = {{"route"}};
  const BatchSpec batch = TokenBatch(1, 8, {{"route", DType::kI64, {1, 8}}});
  EXPECT_EQ(StreamOf(PlanOf(Resolving({}, shared), batch), "route").extent, Extent::kLocal);
  BatchSpec alone = batch;
  alone.cp_size = 1;
  ExpectRefused(Resolving({}, shared), alone, {"route", "resolved to layout identity"});
}

TEST(Resolving, ReadsTheValuesThatTheChosenLayoutReads) {
  PackedBatch batch(1, 8);
  batch.Real({{8}}).Padded({{8}});
  EXPECT_TRUE(Resolving(Attn("te")).Needs(batch.spec()).empty());  // round robin, for it is not THD
  batch.SetScalar("qkv_format", std::string("thd"));
  EXPECT_EQ(Resolving(Attn("te")).Needs(batch.spec()), Thd({}).Needs(batch.spec()));
}

// --- the length that a job agrees on (D14) -------------------------------------------------------

TEST(RowNeed, OfDeepseekV4IsTheCommonLengthOfItsRowsAlone) {
  PackedBatch batch(2, 12);
  // m = 4, cp * m = 8: rows of ceil4(5) + ceil4(3) = 12 and ceil4(9) = 12 columns, so 16.
  batch.Real({{5, 3}, {9}}).Padded({{5, 3}, {9}});
  for (std::optional<int64_t> floor : std::vector<std::optional<int64_t>>{{}, 40}) {
    SharedOptions shared;
    shared.padding_token_id = 0;
    shared.min_padded_len = floor;
    const absl::StatusOr<ShardPlan> plan = batch.PlanBy(DeepseekV4({4}, shared));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->row_need, 16);
    EXPECT_EQ(plan->chunks.front().padded_len, floor.value_or(16));
  }
}

TEST(RowNeed, OfDeepseekV41IsItsLongestRowOrTheRowsAsSent) {
  const auto need = [](const PackedBatch::Rows& lengths, int64_t row_length) {
    PackedBatch batch(1, row_length);
    batch.Real(lengths).Padded(lengths);
    SharedOptions shared;
    shared.padding_token_id = 0;
    const absl::StatusOr<ShardPlan> plan = batch.PlanBy(DeepseekV41({4, 4}, shared));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan->row_need : std::nullopt;
  };
  EXPECT_EQ(need({{5, 3, 1}}, 9), 16);  // 8 + 4 + 4
  EXPECT_EQ(need({{5}}, 17), 17);       // a row never shrinks, and S is not rounded up yet
}

TEST(RowNeed, IsNotThereForRowsThatAreNotPacked) {
  EXPECT_FALSE(PlanOf(DeepseekV4({4}, {.padding_token_id = 0}), TokenBatch(1, 8)).row_need);
  EXPECT_FALSE(PlanOf(DeepseekV41({4, 4}), TokenBatch(1, 16)).row_need);
  EXPECT_FALSE(PlanOf(RoundRobin({}), TokenBatch(1, 8)).row_need);
}

TEST(RowNeed, IsPointedOutWhereTheModelsDispatcherWantsOneLength) {
  PackedBatch batch(1, 8);
  batch.Real({{8}}).Padded({{8}});
  ModelFacts facts;
  facts.family = ModelFamily::kDeepseekV4;
  SharedOptions shared;
  shared.padding_token_id = 0;
  EXPECT_TRUE(batch.PlanBy(Resolving(facts, shared))->notices.empty());
  facts.dispatcher_hybridep = true;
  const ShardPlan plan = *batch.PlanBy(Resolving(facts, shared));
  ASSERT_EQ(plan.notices.size(), 1u);
  EXPECT_EQ(plan.notices[0].code, "length_sync");
  EXPECT_THAT(plan.notices[0].text, HasSubstr("8 columns"));
  shared.min_padded_len = 8;
  EXPECT_TRUE(batch.PlanBy(Resolving(facts, shared))->notices.empty());
}

}  // namespace
}  // namespace cpshard
