// Every cell of contract 3.3: what each model's hook picks, refuses and merges into the batch.
#include "core/plan/model_hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/plan/resolution.h"
#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

ModelFacts FactsOf(ModelFamily family, std::optional<std::string> backend_attn = {}) {
  ModelFacts facts;
  facts.family = family;
  facts.backend_attn = std::move(backend_attn);
  return facts;
}

BatchSpec Thd(BatchSpec spec) {
  spec.scalars.push_back({"qkv_format", std::string("thd")});
  return spec;
}

BatchSpec WithPositions(BatchSpec spec) {
  return With(std::move(spec), {"position_ids", DType::kI64, {3, 1, 16}});
}

SharedOptions PadId(int64_t id) { return {.padding_token_id = id}; }

// The plan without what only a resolved one says.
ShardPlan Bare(const ModelFacts& facts, const BatchSpec& spec) {
  ShardPlan plan = PlanOf(Resolving(facts, PadId(7)), spec);
  EXPECT_TRUE(plan.choice.has_value());
  plan.choice.reset();
  return plan;
}

void ExpectChosen(const ModelFacts& facts, const BatchSpec& spec, const std::string& layout,
                  ClosedForm closed_form) {
  const absl::StatusOr<Resolution> resolution = Resolve(facts, PadId(7), spec);
  ASSERT_TRUE(resolution.ok()) << resolution.status();
  EXPECT_EQ(resolution->chosen.name, layout);
  EXPECT_EQ(resolution->chosen.closed_form, closed_form);
  EXPECT_TRUE(resolution->hook_called);
}

void ExpectHookRefuses(const ModelFacts& facts, const BatchSpec& spec, absl::StatusCode code,
                       const std::string& part) {
  const absl::Status status = Resolve(facts, {}, spec).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_THAT(std::string(status.message()), HasSubstr(FamilyName(facts.family)));
}

// --- DeepSeek ------------------------------------------------------------------------------------

TEST(CompressMultiple, IsTheLcmOfTheRatiosWithFourCountingTwice) {
  const auto of = [](std::vector<int64_t> ratios) { return CompressMultiple(ratios).value(); };
  EXPECT_EQ(of({}), 1);  // corpus I14, all of it
  EXPECT_EQ(of({0, 0}), 1);
  EXPECT_EQ(of({2}), 2);
  EXPECT_EQ(of({4}), 8);
  EXPECT_EQ(of({0, 4, 128}), 128);
  EXPECT_EQ(of({2, 3}), 6);
  EXPECT_EQ(of({8, 4, 6}), 24);
  EXPECT_EQ(of({-5, 3}), 3);
}

TEST(CompressMultiple, RefusesWhatDoesNotFit) {
  EXPECT_EQ(CompressMultiple({kMax, kMax - 1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CompressMultiple({kMax}).value(), kMax);
}

TEST(CompressAlignment, IsTheLcmOfTheRatiosThatAreNotZero) {
  const auto of = [](std::vector<int64_t> ratios) { return CompressAlignment(ratios).value(); };
  EXPECT_EQ(of({}), 1);
  EXPECT_EQ(of({0}), 1);
  EXPECT_EQ(of({4}), 4);
  EXPECT_EQ(of({0, 4, 6}), 12);
  EXPECT_EQ(CompressAlignment({-4}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CompressAlignment({kMax, 2}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ModelHooks, DeepseekV4PadsByItsCompressRatios) {
  ModelFacts facts = FactsOf(ModelFamily::kDeepseekV4);
  facts.compress_ratios = {0, 4};
  const BatchSpec batch = TokenBatch(1, 10);
  ExpectChosen(facts, batch, "deepseek_v4", ClosedForm::kContiguous);
  EXPECT_EQ(Bare(facts, batch), PlanOf(DeepseekV4({8}, PadId(7)), batch));
}

TEST(ModelHooks, DeepseekV41AlignsByThemToo) {
  ModelFacts facts = FactsOf(ModelFamily::kDeepseekV41);
  facts.compress_ratios = {4, 0, 6};
  PackedBatch batch(1, 16);
  batch.Real({{5, 3}}).Padded({{5, 3}});
  ExpectChosen(facts, batch.spec(), "deepseek_v41", ClosedForm::kContiguous);
  ShardPlan plan = *batch.PlanBy(Resolving(facts));
  plan.choice.reset();
  EXPECT_EQ(plan, *batch.PlanBy(DeepseekV41({12, 12})));
}

// --- Gemma, GLM, Kimi, Qwen3.8, MiMo -------------------------------------------------------------

TEST(ModelHooks, Gemma4TakesItsOwnLayoutAndNeedsIds) {
  const ModelFacts facts = FactsOf(ModelFamily::kGemma4);
  const BatchSpec batch = TokenBatch(1, 16);
  ExpectChosen(facts, batch, "gemma4", ClosedForm::kContiguous);
  EXPECT_EQ(Bare(facts, batch), PlanOf(Gemma4(PadId(7)), batch));
  ExpectHookRefuses(facts, Without(batch, "input_ids"), absl::StatusCode::kInvalidArgument,
                    "input_ids");
}

TEST(ModelHooks, ExtraStreamsAreRefusedEvenWhereTheModelsLayoutWouldTakeThem) {
  SharedOptions shared;
  shared.extra_streams = {{"route"}};
  const BatchSpec batch = TokenBatch(1, 16, {{"route", DType::kI64, {1, 16}}});
  const absl::Status status = Resolve(FactsOf(ModelFamily::kGemma4), shared, batch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("route"));
}

TEST(ModelHooks, GlmMoeDsaTakesItsOwnLayoutWithTheBackendsThatCan) {
  for (const char* attn : {"tilelang", "cudnn"}) {
    ModelFacts facts = FactsOf(ModelFamily::kGlmMoeDsa, attn);
    facts.num_chunks = 2;
    PackedBatch batch(2, 4);
    batch.Real({{4}, {4}}).Padded({{4}, {4}});
    ExpectChosen(facts, batch.spec(), "glm_dsa", ClosedForm::kContiguous);
    ShardPlan plan = *batch.PlanBy(Resolving(facts));
    plan.choice.reset();
    EXPECT_EQ(plan, *batch.PlanBy(GlmDsa({2})));
  }
  for (const std::optional<std::string>& attn :
       std::vector<std::optional<std::string>>{"te", "sdpa", std::nullopt}) {
    ExpectHookRefuses(FactsOf(ModelFamily::kGlmMoeDsa, attn), TokenBatch(1, 16),
                      absl::StatusCode::kUnimplemented, "tilelang");
  }
}

TEST(ModelHooks, KimiLinearAndK3TakeTheirVariants) {
  const BatchSpec batch = TokenBatch(1, 16);
  ExpectChosen(FactsOf(ModelFamily::kKimiLinear), batch, "kimi", ClosedForm::kContiguous);
  ExpectChosen(FactsOf(ModelFamily::kKimiK3), batch, "kimi", ClosedForm::kContiguous);
  EXPECT_EQ(Bare(FactsOf(ModelFamily::kKimiLinear), batch),
            PlanOf(Kimi(KimiVariant::kLinear, PadId(7)), batch));
  EXPECT_EQ(Bare(FactsOf(ModelFamily::kKimiK3), batch),
            PlanOf(Kimi(KimiVariant::kK3, PadId(7)), batch));
}

TEST(ModelHooks, KimiK3NeedsAMeshWhereKimiLinearDoesNot) {
  BatchSpec batch = Thd(TokenBatch(1, 16));
  batch.cp_size = std::nullopt;
  ModelFacts facts = FactsOf(ModelFamily::kKimiK3);
  facts.supports_thd = true;  // or the hook is not called
  ExpectHookRefuses(facts, batch, absl::StatusCode::kInvalidArgument, "mesh");
  facts.family = ModelFamily::kKimiLinear;
  ExpectChosen(facts, batch, "kimi", ClosedForm::kContiguous);
}

TEST(ModelHooks, Glm5NextKeepsThePrimaryWhole) {
  const ModelFacts facts = FactsOf(ModelFamily::kGlm5Next);
  const BatchSpec batch = TokenBatch(1, 16);
  ExpectChosen(facts, batch, "glm5_next", ClosedForm::kContiguous);
  EXPECT_EQ(Bare(facts, batch), PlanOf(Glm5Next(Primary::kLeaveFull, PadId(7)), batch));
}

TEST(ModelHooks, MimoTakesItsOwnLayoutWithItsTokenIds) {
  ModelFacts facts = FactsOf(ModelFamily::kMimoV2, "te");
  facts.image_token_id = 5;
  facts.video_token_id = 6;
  facts.num_chunks = 2;
  PackedBatch batch(2, 4);
  batch.Real({{4}, {4}}).Padded({{4}, {4}}).SetScalar("qkv_format", std::string("thd"));
  ExpectChosen(facts, batch.spec(), "mimo", ClosedForm::kNone);
  ShardPlan plan = *batch.PlanBy(Resolving(facts));
  plan.choice.reset();
  EXPECT_EQ(plan, *batch.PlanBy(Mimo({2, 5, 6})));
}

TEST(ModelHooks, MimoNeedsTeAndAThdBatch) {
  const BatchSpec thd = Thd(TokenBatch(1, 16));
  ExpectHookRefuses(FactsOf(ModelFamily::kMimoV2, "sdpa"), thd, absl::StatusCode::kInvalidArgument,
                    "'sdpa'");
  ExpectHookRefuses(FactsOf(ModelFamily::kMimoV2), thd, absl::StatusCode::kInvalidArgument,
                    "not set");
  ExpectHookRefuses(FactsOf(ModelFamily::kMimoV2, "te"), TokenBatch(1, 16),
                    absl::StatusCode::kInvalidArgument, "qkv_format");
}

TEST(ModelHooks, Qwen38FlashNextPadsByItsIndexer) {
  ModelFacts facts = FactsOf(ModelFamily::kQwen38FlashNext);
  const BatchSpec batch = TokenBatch(1, 10);
  ExpectChosen(facts, batch, "qwen3_8", ClosedForm::kContiguous);
  EXPECT_EQ(Bare(facts, batch), PlanOf(Qwen38({4, 1}, PadId(7)), batch));
  facts.indexer_compress_ratio = 8;
  EXPECT_EQ(Bare(facts, batch), PlanOf(Qwen38({8, 1}, PadId(7)), batch));
}

// --- the aux-only models -------------------------------------------------------------------------

TEST(ModelHooks, TheAuxOnlyModelsLeaveThePrimaryWhole) {
  const BatchSpec batch = WithPositions(TokenBatch(1, 16));
  for (ModelFamily family :
       {ModelFamily::kQwen3Vl, ModelFamily::kQwen35, ModelFamily::kQwen35Moe, ModelFamily::kStep37,
        ModelFamily::kNemotronOmni, ModelFamily::kMinimaxM3Vl, ModelFamily::kMuseGlimmer}) {
    SCOPED_TRACE(FamilyName(family));
    ExpectChosen(FactsOf(family), batch, "round_robin", ClosedForm::kRoundRobin);
    EXPECT_EQ(Bare(FactsOf(family), batch), PlanOf(RoundRobin({Primary::kLeaveFull}), batch));
  }
}

TEST(ModelHooks, QwenAndStepNeedIds) {
  const BatchSpec batch = With(WithPositions(Without(TokenBatch(1, 16), "input_ids")),
                               {"inputs_embeds", DType::kF32, {1, 16, 2}});
  for (ModelFamily family : {ModelFamily::kQwen3Vl, ModelFamily::kQwen35, ModelFamily::kQwen35Moe,
                             ModelFamily::kStep37}) {
    ExpectHookRefuses(FactsOf(family), batch, absl::StatusCode::kInvalidArgument, "input_ids");
  }
  ExpectChosen(FactsOf(ModelFamily::kMinimaxM3Vl), batch, "round_robin", ClosedForm::kRoundRobin);
}

// The hook picks a layout all the same, and the refusal names it (D18).
TEST(ModelHooks, QwensPositionsAreNotMadeHereButAskedFor) {
  for (ModelFamily family :
       {ModelFamily::kQwen3Vl, ModelFamily::kQwen35, ModelFamily::kQwen35Moe}) {
    for (const BatchSpec& batch :
         {TokenBatch(1, 16), TokenBatch(1, 16, {{"image_grid_hws", DType::kI64, {5, 2}}})}) {
      ExpectChosen(FactsOf(family), batch, "round_robin", ClosedForm::kRoundRobin);
      const absl::Status status = Resolving(FactsOf(family)).Plan(batch, {}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
      for (const char* part : {"resolved to layout round_robin", "position_ids", "[3, B, S]"}) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(part));
      }
    }
  }
}

TEST(ModelHooks, QwensTokenTypesAreUsedUp) {
  const BatchSpec batch =
      With(WithPositions(TokenBatch(1, 16)), {"mm_token_type_ids", DType::kI64, {1, 16}});
  for (ModelFamily family :
       {ModelFamily::kQwen3Vl, ModelFamily::kQwen35, ModelFamily::kQwen35Moe}) {
    EXPECT_FALSE(HasStream(Bare(FactsOf(family), batch), "mm_token_type_ids"));
  }
  EXPECT_TRUE(HasStream(Bare(FactsOf(ModelFamily::kStep37), batch), "mm_token_type_ids"));
}

TEST(ModelHooks, Qwen35TurnsAGridOfHeightAndWidthIntoOneWithTime) {
  const BatchSpec batch =
      With(WithPositions(TokenBatch(1, 16)), {"image_grid_hws", DType::kI64, {5, 2}});
  for (ModelFamily family : {ModelFamily::kQwen35, ModelFamily::kQwen35Moe}) {
    const ShardPlan plan = Bare(FactsOf(family), batch);
    EXPECT_FALSE(HasStream(plan, "image_grid_hws"));
    const StreamPlan grid = StreamOf(plan, "image_grid_thw");
    EXPECT_THAT(OutputSpec(plan, grid, 1).dims, ElementsAre(5, 3));
    EXPECT_EQ(std::get<ViewOf>(grid.value.from).source, "image_grid_hws");
    EXPECT_EQ(grid.fill.value.bits, 1u);
    const IndexMap& columns = LayoutsOf(plan, grid).front().placement.front();
    EXPECT_THAT(columns.runs(), ElementsAre(cpshard::Run{kFill, 1}, cpshard::Run{0, 2}));
  }
  EXPECT_TRUE(HasStream(Bare(FactsOf(ModelFamily::kQwen3Vl), batch), "image_grid_hws"));
}

TEST(ModelHooks, Qwen35LeavesAGridThatNeedsNoPromotion) {
  const BatchSpec batch = WithPositions(TokenBatch(1, 16));
  const ModelFacts facts = FactsOf(ModelFamily::kQwen35);
  // Three columns: only the name changes.
  ShardPlan plan = Bare(facts, With(batch, {"image_grid_hws", DType::kI64, {5, 3}}));
  EXPECT_THAT(StreamOf(plan, "image_grid_thw").dims, ElementsAre(5, 3));
  EXPECT_EQ(StreamOf(plan, "image_grid_thw").extent, Extent::kWhole);
  EXPECT_FALSE(HasStream(plan, "image_grid_hws"));
  // Nothing in it, or the other one is there: both stay as sent.
  plan = Bare(facts, With(batch, {"image_grid_hws", DType::kI64, {0, 2}}));
  EXPECT_TRUE(HasStream(plan, "image_grid_hws"));
  EXPECT_FALSE(HasStream(plan, "image_grid_thw"));
  plan = Bare(facts, With(With(batch, {"image_grid_hws", DType::kI64, {5, 2}}),
                          {"image_grid_thw", DType::kI64, {4, 3}}));
  EXPECT_TRUE(HasStream(plan, "image_grid_hws"));
  EXPECT_THAT(StreamOf(plan, "image_grid_thw").dims, ElementsAre(4, 3));
}

TEST(ModelHooks, Qwen35RefusesAGridThatIsNone) {
  const BatchSpec batch = WithPositions(TokenBatch(1, 16));
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{{}, {2}, {4, 1, 2}}) {
    ExpectRefused(Resolving(FactsOf(ModelFamily::kQwen35)),
                  With(batch, {"image_grid_hws", DType::kI64, dims}),
                  {"resolved to layout round_robin", "'image_grid_hws'"});
  }
}

// A grid is no stream of tokens: as many columns as it has count, not those of the row.
TEST(ModelHooks, Qwen35sGridCountsAsMuchAsItHolds) {
  const auto bytes = [](const BatchSpec& batch) {
    const ShardPlan plan = Bare(FactsOf(ModelFamily::kQwen35), batch);
    return CheckedOutputBytes(plan, {0, 1}, Limits()).value();
  };
  const BatchSpec batch = WithPositions(TokenBatch(1, 16));
  EXPECT_EQ(bytes(With(batch, {"image_grid_hws", DType::kI64, {5, 2}})), bytes(batch) + 5 * 3 * 8);
}

TEST(ModelHooks, Qwen35MoeTakesBlockDiagonalForPackedRows) {
  const ModelFacts facts = FactsOf(ModelFamily::kQwen35Moe, "sdpa");
  const BatchSpec batch = WithPositions(TokenBatch(1, 16));
  for (const TensorSpec& packed : {TensorSpec{"_packed_seq_ids", DType::kI64, {1, 16}},
                                   TensorSpec{"attention_mask", DType::kBool, {1, 1, 16, 16}}}) {
    ExpectChosen(facts, With(batch, packed), "block_diagonal", ClosedForm::kContiguous);
    ExpectHookRefuses(FactsOf(ModelFamily::kQwen35Moe, "te"), With(batch, packed),
                      absl::StatusCode::kInvalidArgument, "sdpa");
    ExpectHookRefuses(FactsOf(ModelFamily::kQwen35Moe), With(batch, packed),
                      absl::StatusCode::kInvalidArgument, "sdpa");
  }
  ExpectChosen(facts, With(batch, {"attention_mask", DType::kBool, {1, 16}}), "round_robin",
               ClosedForm::kRoundRobin);
  PackedBatch packed(1, 16);
  packed.Set({"_packed_seq_ids", DType::kI64, {1, 16}}, std::vector<int64_t>(16, 1));
  ShardPlan plan = *packed.PlanBy(Resolving(facts));
  plan.choice.reset();
  EXPECT_EQ(plan, *packed.PlanBy(BlockDiagonal(Primary::kLeaveFull)));
}

// --- the models that leave a THD batch to te -----------------------------------------------------

PackedBatch ThdRow() {
  PackedBatch batch(1, 16);
  batch.Real({{6, 7}}).Padded({{8, 8}}).SetScalar("qkv_format", std::string("thd"));
  return batch;
}

TEST(ModelHooks, NemotronOmniLeavesAThdBatchToTeAndMasksItsMedia) {
  ModelFacts facts = FactsOf(ModelFamily::kNemotronOmni, "te");
  facts.image_token_id = 18;
  const PackedBatch batch = ThdRow();
  ExpectChosen(facts, batch.spec(), "thd", ClosedForm::kNone);
  ShardPlan plan = *batch.PlanBy(Resolving(facts));
  const StreamPlan image = StreamOf(plan, "_nemotron_omni_global_image_mask");
  EXPECT_EQ(image.dtype, DType::kBool);
  EXPECT_THAT(image.dims, ElementsAre(16));
  EXPECT_EQ(image.extent, Extent::kWhole);
  EXPECT_EQ(image.value.op, Op::kEquals);
  EXPECT_EQ(image.value.operand, 18);
  EXPECT_FALSE(HasStream(plan, "_nemotron_omni_global_sound_mask"));
  facts.sound_token_id = 19;
  plan = *batch.PlanBy(Resolving(facts));
  EXPECT_EQ(StreamOf(plan, "_nemotron_omni_global_sound_mask").value.operand, 19);
}

// Contract 5.6: chunks for one rank drop what is no stream of tokens; those for several keep it
// (D16).
TEST(ModelHooks, MergedTensorsDoNotSurviveChunksForOneRank) {
  PackedBatch batch(2, 8);
  batch.Real({{8}, {8}}).Padded({{8}, {8}}).SetScalar("qkv_format", std::string("thd"));
  batch.Set({"pixel_values", DType::kF32, {2, 3}}).Set({"vision_mask", DType::kBool, {2, 8}});
  ModelFacts nemotron = FactsOf(ModelFamily::kNemotronOmni, "te");
  nemotron.image_token_id = 18;
  ModelFacts muse = FactsOf(ModelFamily::kMuseGlimmer, "te");
  muse.sliding_window = 8;
  for (auto& [facts, name] : {std::pair(&nemotron, "_nemotron_omni_global_image_mask"),
                              std::pair(&muse, "_muse_glimmer_global_vision_mask")}) {
    facts->supports_thd = true;  // so that the hook is called at cp_size 1
    facts->num_chunks = 2;
    EXPECT_FALSE(HasStream(*batch.Cp(1).PlanBy(Resolving(*facts)), name));
    EXPECT_TRUE(HasStream(*batch.Cp(2).PlanBy(Resolving(*facts)), name));
    facts->num_chunks = 1;
    EXPECT_TRUE(HasStream(*batch.Cp(1).PlanBy(Resolving(*facts)), name));
  }
  EXPECT_EQ(batch.Cp(1).PlanBy(Resolving(muse))->scalars.back().name,
            "_muse_glimmer_thd_max_real_seqlen");
}

TEST(ModelHooks, NemotronOmniAsksForTheTokenIdThatItMasks) {
  ExpectHookRefuses(FactsOf(ModelFamily::kNemotronOmni, "te"), ThdRow().spec(),
                    absl::StatusCode::kInvalidArgument, "image_token_id");
  // Without ids there is nothing to mask, and no layout either.
  const BatchSpec no_ids = Without(ThdRow().spec(), "input_ids");
  ExpectChosen(FactsOf(ModelFamily::kNemotronOmni, "te"), no_ids, "thd", ClosedForm::kNone);
}

TEST(ModelHooks, MuseGlimmerLeavesAThdBatchToTeAndCountsItsLongestDocument) {
  ModelFacts facts = FactsOf(ModelFamily::kMuseGlimmer, "te");
  facts.sliding_window = 7;
  const PackedBatch batch = ThdRow();
  ExpectChosen(facts, batch.spec(), "thd", ClosedForm::kNone);
  const absl::StatusOr<ShardPlan> plan = batch.PlanBy(Resolving(facts));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->scalars.back(),
            (ScalarPlan{"_muse_glimmer_thd_max_real_seqlen", {Scalar(int64_t{7})}}));
  EXPECT_FALSE(HasStream(*plan, "_muse_glimmer_global_vision_mask"));
}

TEST(ModelHooks, MuseGlimmerRefusesADocumentOverItsWindowOnAMesh) {
  ModelFacts facts = FactsOf(ModelFamily::kMuseGlimmer, "te");
  facts.sliding_window = 6;
  PackedBatch batch = ThdRow();
  absl::Status status = batch.PlanBy(Resolving(facts)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sliding_window 6"));
  facts.supports_thd = true;  // so that the hook is called below cp_size 2
  EXPECT_FALSE(batch.Cp(1).PlanBy(Resolving(facts)).ok());
  EXPECT_TRUE(batch.Cp(std::nullopt).PlanBy(Resolving(facts)).ok());
  facts.sliding_window = std::nullopt;
  EXPECT_TRUE(batch.PlanBy(Resolving(facts)).ok());
  ExpectHookRefuses(facts, batch.Cp(2).spec(), absl::StatusCode::kInvalidArgument,
                    "sliding_window");
}

TEST(ModelHooks, MuseGlimmerNeedsSeqLensOfAThdBatch) {
  ModelFacts facts = FactsOf(ModelFamily::kMuseGlimmer, "te");
  facts.sliding_window = 8;
  ExpectHookRefuses(facts, Without(ThdRow().spec(), "seq_lens"), absl::StatusCode::kInvalidArgument,
                    "seq_lens");
}

TEST(ModelHooks, MuseGlimmerHandsOnTheVisionMaskThatWasSentAndMakesNone) {
  ModelFacts facts = FactsOf(ModelFamily::kMuseGlimmer, "te");
  facts.sliding_window = 8;
  PackedBatch batch = ThdRow();
  batch.Set({"pixel_values", DType::kF32, {4, 3}});
  const absl::Status status = batch.PlanBy(Resolving(facts)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("vision_mask"));
  batch.Set({"vision_mask", DType::kBool, {1, 16}});
  const absl::StatusOr<ShardPlan> plan = batch.PlanBy(Resolving(facts));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const StreamPlan mask = StreamOf(*plan, "_muse_glimmer_global_vision_mask");
  EXPECT_EQ(std::get<ViewOf>(mask.value.from).source, "vision_mask");
  EXPECT_EQ(mask.extent, Extent::kWhole);
}

}  // namespace
}  // namespace cpshard
