#include "proto/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/options.pb.h"

namespace cpshard {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

absl::Status ParseStatus(absl::string_view json) { return Options::FromJson(json).status(); }

absl::Status SharderStatus(absl::string_view json) {
  const absl::StatusOr<Options> options = Options::FromJson(json);
  return options.ok() ? options->MakeSharder().status() : options.status();
}

TEST(Options, EveryLayoutOfTheWireIsBuilt) {
  const auto* layouts = v1::ShardingOptions::descriptor()->FindOneofByName("layout");
  const std::vector<std::string> built = Options::BuiltLayouts();
  for (int i = 0; i < layouts->field_count(); ++i) {
    const std::string name = layouts->field(i)->name();
    if (name == "model") continue;  // stands for one of the others
    EXPECT_THAT(built, Contains(name));
  }
}

TEST(Options, EveryBuiltLayoutMakesASharder) {
  for (const std::string& layout : Options::BuiltLayouts()) {
    if (layout == "kimi" || layout == "magi") continue;  // they have variants
    EXPECT_TRUE(SharderStatus("{\"" + layout + "\": {}}").ok()) << layout;
  }
  for (const char* json :
       {R"({"kimi": {"variant": "LINEAR"}})", R"({"kimi": {"variant": "K3"}})",
        R"({"magi": {"variant": "HF"}})", R"({"magi": {"variant": "CUSTOM", "domain": "VLM"}})"}) {
    EXPECT_TRUE(SharderStatus(json).ok()) << json;
  }
}

TEST(Options, OfALayoutThatHasVariantsNeedOne) {
  for (const char* json : {R"({"kimi": {}})", R"({"kimi": {"variant": 0}})", R"({"magi": {}})",
                           R"({"magi": {"domain": "LLM", "chunk_size": 2}})"}) {
    const absl::Status status = SharderStatus(json);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr("variant")) << json;
  }
}

TEST(Options, SurviveTheWayThroughJson) {
  const char* json = R"({"padding_token_id": "-7", "round_robin": {"keep_primary_full": true},
                         "extra_streams": [{"name": "route", "seq_axis": 0, "int_pad": "3"}]})";
  const Options options = *Options::FromJson(json);
  const Options again = *Options::FromJson(options.ToJson());
  EXPECT_EQ(again.message().SerializeAsString(), options.message().SerializeAsString());
  EXPECT_EQ(options.message().padding_token_id(), -7);
  EXPECT_TRUE(options.message().round_robin().keep_primary_full());
}

TEST(Options, RefuseWhatTheyDoNotKnow) {
  for (const char* json :
       {R"({"contiguos": {}})", R"({"contiguous": {"pad_mutiple": 4}})",
        R"({"kimi": {"variant": "K9"}})", R"({"contiguous": {"pad_multiple": "four"}})",
        R"({"contiguous": {"pad_multiple": 1.5}})",
        R"({"contiguous": {"pad_multiple": 9223372036854775808}})",
        R"({"contiguous": {}, "padding_token_id": -9223372036854775809})",
        R"({"contiguous": {}, "padding_token_id": "-9223372036854775809"})",
        R"({"contiguous": {}, "padding_token_id": 1, "padding_token_id": 2})",
        R"({'contiguous': {}})", R"({"contiguous": {},})", R"({"contiguous": 3})", "[]", "", "{",
        R"({"contiguous": {}} trailing)"}) {
    EXPECT_EQ(ParseStatus(json).code(), absl::StatusCode::kInvalidArgument) << json;
  }
}

TEST(Options, RefuseTwoLayouts) {
  EXPECT_EQ(ParseStatus(R"({"contiguous": {}, "round_robin": {}})").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Options, WithoutALayoutNameTheOnesThereAre) {
  const absl::Status status = SharderStatus(R"({"padding_token_id": 0})");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("contiguous"));
}

// The plan of input_ids and labels [1, 4] at cp_size 2.
absl::StatusOr<ShardPlan> PlanOf(absl::string_view json) {
  BatchSpec spec;
  spec.cp_size = 2;
  spec.tensors = {{"input_ids", DType::kI64, {1, 4}}, {"labels", DType::kI64, {1, 4}}};
  return Options::FromJson(json)->MakeSharder()->Plan(spec, {});
}

TEST(Options, WithTargetsMakeASharderThatMakesThem) {
  const absl::StatusOr<ShardPlan> plan =
      PlanOf(R"({"contiguous": {}, "targets": {"num_depths": 2, "ignore_index": "-7"}})");
  ASSERT_TRUE(plan.ok()) << plan.status();
  int found = 0;
  for (const StreamPlan& stream : plan->streams) {
    if (stream.name != "targets.0" && stream.name != "targets.1") continue;
    EXPECT_EQ(static_cast<int64_t>(stream.fill.value.bits), -7);
    ++found;
  }
  EXPECT_EQ(found, 2);
}

TEST(Options, WithoutAnIgnoreIndexMark100AsNoTarget) {
  const absl::StatusOr<ShardPlan> plan =
      PlanOf(R"({"contiguous": {}, "targets": {"num_depths": 1}})");
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const StreamPlan& stream : plan->streams) {
    if (stream.name != "targets.0") continue;
    EXPECT_EQ(static_cast<int64_t>(stream.fill.value.bits), -100);
  }
}

// The contract's defaults: of GLM-5-next's own function the primary stays whole (4.16), of all
// others it is cut.
TEST(Options, LeaveThePrimaryWholeWhereTheContractDoes) {
  const auto extent = [](absl::string_view layout) {
    const absl::StatusOr<ShardPlan> plan =
        PlanOf(absl::StrCat("{\"padding_token_id\": 0, ", layout, "}"));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? std::string(ExtentName(plan->streams.front().extent)) : "";
  };
  EXPECT_EQ(extent(R"("glm5_next": {})"), "whole");
  EXPECT_EQ(extent(R"("glm5_next": {"keep_primary_full": true})"), "whole");
  EXPECT_EQ(extent(R"("glm5_next": {"keep_primary_full": false})"), "local");
  for (const char* layout : {"contiguous", "round_robin", "block_diagonal"}) {
    EXPECT_EQ(extent(absl::StrCat("\"", layout, "\": {}")), "local") << layout;
    EXPECT_EQ(extent(absl::StrCat("\"", layout, "\": {\"keep_primary_full\": true}")), "whole")
        << layout;
  }
}

TEST(Options, RefuseTargetsOfNoDepth) {
  const absl::Status status = PlanOf(R"({"contiguous": {}, "targets": {}})").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("num_depths 0"));
}

TEST(Options, RefuseAFieldNumberTheyDoNotKnowAtAnyDepth) {
  v1::ShardingOptions outer;
  outer.mutable_contiguous();
  outer.GetReflection()->MutableUnknownFields(&outer)->AddVarint(99, 1);
  EXPECT_EQ(Options(outer).MakeSharder().status().code(), absl::StatusCode::kInvalidArgument);

  v1::ShardingOptions inner;
  v1::Contiguous* contiguous = inner.mutable_contiguous();
  contiguous->GetReflection()->MutableUnknownFields(contiguous)->AddVarint(99, 1);
  const absl::Status status = Options(inner).MakeSharder().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("99"));
}

TEST(Options, RefuseAnEnumNumberTheyDoNotKnow) {
  v1::ShardingOptions message;
  message.mutable_kimi()->set_variant(static_cast<v1::Kimi::Variant>(17));
  EXPECT_EQ(Options(message).MakeSharder().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cpshard
