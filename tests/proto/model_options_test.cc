// Options that name a model: from the message to the plan, and how its reply says what was chosen.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/exec/shard.h"
#include "core/plan/model_hooks.h"
#include "cpshard/v1/options.pb.h"
#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "proto/json.h"
#include "proto/options.h"
#include "proto/replies.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelOptions : public ::testing::Test {
 protected:
  // i64 tensors with the values 1, 2, 3, ...
  Tensor Counting(const std::string& name, std::vector<int64_t> dims) {
    Tensor tensor{{name, DType::kI64, std::move(dims)}, {}};
    const int64_t count = NumElements(tensor.spec);
    tensor.buffer = *pool_.Allocate(count * sizeof(int64_t));
    for (int64_t i = 0; i < count; ++i) Put(tensor, i, i + 1);
    return tensor;
  }
  static void Put(Tensor& tensor, int64_t i, int64_t value) {
    std::memcpy(tensor.buffer.data() + i * sizeof(value), &value, sizeof(value));
  }
  Batch Tokens(int64_t length) {
    Batch batch;
    for (const char* name : {"input_ids", "labels"}) {
      batch.tensors.push_back(Counting(name, {1, length}));
    }
    return batch;
  }
  // Packed with documents of these lengths.
  Batch Packed(int64_t length, const std::vector<int64_t>& documents) {
    Batch batch = Tokens(length);
    batch.tensors.push_back(Counting("position_ids", {1, length}));
    for (const char* name : {"seq_lens", "seq_lens_padded"}) {
      Tensor lengths = Counting(name, {1, static_cast<int64_t>(documents.size())});
      for (size_t i = 0; i < documents.size(); ++i) Put(lengths, i, documents[i]);
      batch.tensors.push_back(lengths);
    }
    batch.scalars.push_back({"qkv_format", std::string("thd")});
    return batch;
  }
  absl::StatusOr<ShardPlan> Plan(const std::string& model, const Batch& batch) {
    const absl::StatusOr<Options> options =
        Options::FromJson("{\"padding_token_id\": 0, \"model\": " + model + "}");
    if (!options.ok()) return options.status();
    const absl::StatusOr<Sharder> sharder = options->MakeSharder();
    if (!sharder.ok()) return sharder.status();
    return PlanBatch(*sharder, batch, 2);
  }
  std::string Layout(const std::string& model, const Batch& batch) {
    const absl::StatusOr<ShardPlan> plan = Plan(model, batch);
    EXPECT_TRUE(plan.ok()) << model << ": " << plan.status();
    return plan.ok() ? plan->choice.value().layout : "";
  }

  BufferPool pool_;
};

TEST_F(ModelOptions, EveryFamilyOfTheWireIsKnown) {
  const google::protobuf::EnumDescriptor* families = v1::Model::Family_descriptor();
  for (int i = 0; i < families->value_count(); ++i) {
    const std::string name = families->value(i)->name();
    EXPECT_TRUE(Plan("{\"family\": \"" + name + "\", \"invoke_pre_embed\": false}", Tokens(8)).ok())
        << name;
  }
  EXPECT_EQ(families->value_count(), static_cast<int>(ModelFamily::kMuseGlimmer) + 1);
}

TEST_F(ModelOptions, AreNamesOfFamiliesAsTheHooksRefusalsSpellThem) {
  // GLM_MOE_DSA refuses every batch without a backend, and says whose hook that is.
  const absl::Status status = Plan(R"({"family": "GLM_MOE_DSA"})", Tokens(8)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("glm_moe_dsa"));
}

TEST_F(ModelOptions, WithoutFactsTheyAreTheGenericChoice) {
  EXPECT_EQ(Layout("{}", Tokens(8)), "round_robin");
}

TEST_F(ModelOptions, CarryTheFactsOfTheRungs) {
  const Batch packed = Packed(8, {4, 4});
  EXPECT_EQ(Layout(R"({"backend_attn": "te"})", packed), "thd");
  EXPECT_EQ(Layout(R"({"attn_implementation": "te"})", packed), "thd");
  EXPECT_EQ(Layout(R"({"te_attention_injected": true})", packed), "thd");
  EXPECT_EQ(Layout(R"({"attn_implementation": "magi"})", Tokens(8)), "magi");
  EXPECT_EQ(Layout(R"({"family": "GEMMA4"})", Tokens(8)), "gemma4");
  EXPECT_EQ(Layout(R"({"family": "GEMMA4", "invoke_pre_embed": false})", Tokens(8)), "round_robin");
  EXPECT_EQ(Layout(R"({"family": "GEMMA4", "backend_attn": "magi"})", Tokens(8)), "magi");
  EXPECT_EQ(Layout(R"({"family": "GEMMA4", "backend_attn": "magi",
                       "has_vision_or_audio_tower": true})",
                   Tokens(8)),
            "gemma4");
}

TEST_F(ModelOptions, CarryTheFactsOfTheHooks) {
  const auto padded = [](const absl::StatusOr<ShardPlan>& plan) {
    return plan.ok() ? plan->chunks.front().padded_len : -1;
  };
  EXPECT_EQ(padded(Plan(R"({"family": "DEEPSEEK_V4", "compress_ratios": [0, 4]})", Tokens(10))),
            16);
  EXPECT_EQ(
      padded(Plan(R"({"family": "QWEN3_8_FLASH_NEXT", "indexer_compress_ratio": 16})", Tokens(10))),
      32);
  EXPECT_EQ(Plan(R"({"family": "QWEN3_8_FLASH_NEXT", "tp_size": 2})", Tokens(16)).status().code(),
            absl::StatusCode::kUnimplemented);
  const Batch packed = Packed(8, {4, 4});
  EXPECT_EQ(Plan(R"({"family": "MUSE_GLIMMER", "backend_attn": "te", "sliding_window": 3})", packed)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Layout(R"({"family": "MUSE_GLIMMER", "backend_attn": "te", "sliding_window": 4})", packed),
      "thd");
  const auto masks = [&](const std::string& model) {
    std::vector<std::string> names;
    const ShardPlan plan = *Plan(model, packed);
    for (const StreamPlan& stream : plan.streams) {
      if (stream.value.op == Op::kEquals) {
        names.push_back(absl::StrCat(stream.name, "=", stream.value.operand));
      }
    }
    return names;
  };
  EXPECT_THAT(
      masks(R"({"family": "NEMOTRON_OMNI", "backend_attn": "te", "image_token_id": 3,
                        "sound_token_id": 4})"),
      ElementsAre("_nemotron_omni_global_image_mask=3", "_nemotron_omni_global_sound_mask=4"));
  EXPECT_THAT(masks(R"({"family": "MIMO_V2", "backend_attn": "te", "image_token_id": 3,
                        "video_token_id": 5})"),
              ElementsAre("_mimo_global_image_mask=3", "_mimo_global_video_mask=5"));
}

TEST_F(ModelOptions, APromotedGridHasItsTimesBeforeHeightAndWidth) {
  Batch batch = Tokens(8);
  batch.tensors.push_back(Counting("position_ids", {3, 1, 8}));
  batch.tensors.push_back(Counting("image_grid_hws", {2, 2}));
  const Options options = *Options::FromJson(R"({"model": {"family": "QWEN3_5"}})");
  const auto executor = MakeCpuExecutor();
  const absl::StatusOr<ShardResult> result =
      ShardBatch(*options.MakeSharder(), batch, 2, {}, Limits(), *executor, pool_);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const RankShard& shard : result->shards) {
    EXPECT_EQ(shard.batch.FindTensor("image_grid_hws"), nullptr);
    const Tensor* grid = shard.batch.FindTensor("image_grid_thw");
    ASSERT_NE(grid, nullptr);
    EXPECT_THAT(grid->spec.dims, ElementsAre(2, 3));
    EXPECT_THAT(ViewValues(*grid).ToVector(), ElementsAre(1, 1, 2, 1, 3, 4));
  }
}

// --- the reply -----------------------------------------------------------------------------------

TEST_F(ModelOptions, TheReplySaysWhatWasChosenAndWhatTheRowsNeed) {
  const absl::StatusOr<ShardPlan> plan =
      Plan(R"({"family": "DEEPSEEK_V4", "compress_ratios": [8]})", Packed(8, {5, 3}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PlanSummary summary = *Summarize(*plan, {}, {0, 1}, Limits());
  v1::PlanLayoutReply reply;
  ASSERT_TRUE(EncodePlanLayoutReply(summary, &reply).ok());
  EXPECT_EQ(reply.chosen(), "deepseek_v4");
  EXPECT_THAT(reply.reason(), HasSubstr("hook of model deepseek_v4"));
  EXPECT_EQ(reply.row_need(), 16);  // documents of 8 columns each, rows of multiples of 16
  const PlanSummary read = *DecodePlanLayoutReply(reply);
  EXPECT_EQ(read.choice, plan->choice);
  EXPECT_EQ(read.row_need, 16);
  EXPECT_THAT(*SummaryToJson(summary), HasSubstr("deepseek_v4"));
}

TEST_F(ModelOptions, AReplyOfALayoutThatWasNamedHasNoChoice) {
  const Options options = *Options::FromJson(R"({"round_robin": {}})");
  const ShardPlan plan = *PlanBatch(*options.MakeSharder(), Tokens(8), 2);
  v1::PlanLayoutReply reply;
  ASSERT_TRUE(EncodePlanLayoutReply(*Summarize(plan, {}, {0}, Limits()), &reply).ok());
  EXPECT_EQ(reply.chosen(), "");
  EXPECT_FALSE(reply.has_row_need());
  const PlanSummary read = *DecodePlanLayoutReply(reply);
  EXPECT_EQ(read.choice, std::nullopt);
  EXPECT_EQ(read.row_need, std::nullopt);
}

}  // namespace
}  // namespace cpshard
