// What may come in at all.
#include "core/plan/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

BatchSpec Batch(std::vector<TensorSpec> tensors, std::vector<ScalarEntry> scalars = {}) {
  return {std::move(tensors), std::move(scalars), 2};
}

void ExpectInvalid(const absl::Status& status, const testing::Matcher<std::string>& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), text);
}

TEST(Spec, AnEmptyBatchIsLegal) { EXPECT_TRUE(ValidateSpec({}, {}).ok()); }

TEST(Spec, CountsElementsAndBytes) {
  EXPECT_EQ(NumElements({"x", DType::kI32, {2, 3, 4}}), 24);
  EXPECT_EQ(NumBytes({"x", DType::kI32, {2, 3, 4}}), 96);
  EXPECT_EQ(NumElements({"x", DType::kI64, {}}), 1);  // 0-d: one element
  EXPECT_EQ(NumBytes({"x", DType::kF16, {5, 0}}), 0);
}

TEST(Spec, DimsReadAsAList) {
  EXPECT_EQ(DimsString({2, 8190}), "[2, 8190]");
  EXPECT_EQ(DimsString({}), "[]");
}

TEST(Spec, TensorsAndScalarsAreFoundByName) {
  const BatchSpec spec = Batch({{"input_ids", DType::kI64, {1, 2}}}, {{"qkv_format", "thd"}});
  ASSERT_NE(spec.FindTensor("input_ids"), nullptr);
  EXPECT_THAT(spec.FindTensor("input_ids")->dims, ElementsAre(1, 2));
  EXPECT_EQ(spec.FindTensor("qkv_format"), nullptr);
  EXPECT_EQ(*spec.FindScalar("qkv_format"), Scalar("thd"));
  EXPECT_EQ(spec.FindScalar("input_ids"), nullptr);
  EXPECT_TRUE(spec.Has("input_ids") && spec.Has("qkv_format"));
  EXPECT_FALSE(spec.Has("labels"));
}

TEST(Spec, WithoutAMeshOneRankGetsAShard) {
  BatchSpec spec;
  EXPECT_EQ(spec.num_ranks(), 1);
  spec.cp_size = 8;
  EXPECT_EQ(spec.num_ranks(), 8);
}

TEST(Spec, CpSizeIsOneToTheLimitOrAbsent) {
  BatchSpec spec;
  for (int64_t good : {1, 2, 4096}) {
    spec.cp_size = good;
    EXPECT_TRUE(ValidateSpec(spec, {}).ok()) << good;
  }
  for (int64_t bad : {0, -1, 4097}) {
    spec.cp_size = bad;
    ExpectInvalid(ValidateSpec(spec, {}),
                  AllOf(HasSubstr("cp_size"), HasSubstr("4096"), HasSubstr(std::to_string(bad))));
  }
}

TEST(Spec, ABatchHasAtMost256Tensors) {
  BatchSpec spec;
  for (int i = 0; i < 256; ++i) {
    spec.tensors.push_back({"t" + std::to_string(i), DType::kI64, {1}});
  }
  EXPECT_TRUE(ValidateSpec(spec, {}).ok());
  spec.tensors.push_back({"one too many", DType::kI64, {1}});
  ExpectInvalid(ValidateSpec(spec, {}), AllOf(HasSubstr("257"), HasSubstr("256")));
}

TEST(Spec, ATensorHasAtMostEightAxes) {
  EXPECT_TRUE(ValidateSpec(Batch({{"x", DType::kI64, {1, 1, 1, 1, 1, 1, 1, 1}}}), {}).ok());
  EXPECT_TRUE(ValidateSpec(Batch({{"x", DType::kI64, {}}}), {}).ok());
  ExpectInvalid(ValidateSpec(Batch({{"deep", DType::kI64, {1, 1, 1, 1, 1, 1, 1, 1, 1}}}), {}),
                AllOf(HasSubstr("deep"), HasSubstr("9"), HasSubstr("8")));
}

TEST(Spec, ANameHasOneTo128Bytes) {
  const std::string longest(128, 'n');
  EXPECT_TRUE(ValidateSpec(Batch({{longest, DType::kI64, {1}}}), {}).ok());
  ExpectInvalid(ValidateSpec(Batch({{longest + "n", DType::kI64, {1}}}), {}),
                AllOf(HasSubstr("nnnn"), HasSubstr("129"), HasSubstr("128")));
  ExpectInvalid(ValidateSpec(Batch({{"", DType::kI64, {1}}}), {}), HasSubstr("empty"));
  ExpectInvalid(ValidateSpec(Batch({}, {{longest + "n", true}}), {}), HasSubstr("129"));
  ExpectInvalid(ValidateSpec(Batch({}, {{"", true}}), {}), HasSubstr("empty"));
}

TEST(Spec, ReservedPrefixesAreRefusedForTensorsAndScalars) {
  for (const char* name : {"_cpshard.x", "_meta.", "_layout.input_row_shape", "__metadata__"}) {
    ExpectInvalid(ValidateSpec(Batch({{name, DType::kI64, {1}}}), {}), HasSubstr(name));
    ExpectInvalid(ValidateSpec(Batch({}, {{name, 1.0}}), {}), HasSubstr(name));
  }
  for (const char* name : {"_cpshard", "_packed_seq_ids", "meta.x", "x_meta.", "_Layout.x"}) {
    EXPECT_TRUE(ValidateSpec(Batch({{name, DType::kI64, {1}}}), {}).ok()) << name;
  }
}

TEST(Spec, AZeroByteInANameIsRefusedSinceItEndsNamesInTheDigest) {
  const std::string name("a\0b", 3);
  ExpectInvalid(ValidateSpec(Batch({{name, DType::kI64, {1}}}), {}), HasSubstr("zero byte"));
}

TEST(Spec, NoNameIsUsedTwiceAcrossTensorsAndScalars) {
  ExpectInvalid(ValidateSpec(Batch({{"a", DType::kI64, {1}}, {"a", DType::kF32, {2}}}), {}),
                HasSubstr("'a'"));
  ExpectInvalid(ValidateSpec(Batch({{"b", DType::kI64, {1}}}, {{"b", true}}), {}),
                HasSubstr("'b'"));
  ExpectInvalid(ValidateSpec(Batch({}, {{"c", true}, {"c", false}}), {}), HasSubstr("'c'"));
}

TEST(Spec, ANegativeLengthIsRefusedWithItsShape) {
  ExpectInvalid(ValidateSpec(Batch({{"labels", DType::kI64, {2, -8}}}), {}),
                AllOf(HasSubstr("labels"), HasSubstr("[2, -8]")));
  ExpectInvalid(ValidateSpec(Batch({{"labels", DType::kI64, {0, -1}}}), {}), HasSubstr("[0, -1]"));
}

TEST(Spec, TheBatchMayHoldExactlyTheLimitAndNoByteMore) {
  const Limits limits{.max_batch_bytes = 100};
  EXPECT_TRUE(ValidateSpec(Batch({{"a", DType::kI64, {5}}, {"b", DType::kU8, {60}}}), limits).ok());
  ExpectInvalid(ValidateSpec(Batch({{"a", DType::kI64, {5}}, {"last", DType::kU8, {61}}}), limits),
                AllOf(HasSubstr("last"), HasSubstr("[61]"), HasSubstr("100")));
}

TEST(Spec, ASizeBeyondInt64IsRefused) {
  ExpectInvalid(
      ValidateSpec(Batch({{"wide", DType::kU8, {int64_t{1} << 32, int64_t{1} << 32}}}), {}),
      AllOf(HasSubstr("wide"), HasSubstr("[4294967296, 4294967296]")));
  ExpectInvalid(ValidateSpec(Batch({{"wide", DType::kI64, {int64_t{1} << 60}}}), {}),
                HasSubstr("wide"));
}

TEST(Spec, AZeroDimDoesNotHideAnOverflow) {
  const int64_t huge = int64_t{1} << 40;
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{0, huge, huge}, {huge, 0, huge}, {huge, huge, 0}}) {
    ExpectInvalid(ValidateSpec(Batch({{"hidden", DType::kI64, dims}}), {}), HasSubstr("hidden"));
  }
  EXPECT_TRUE(ValidateSpec(Batch({{"empty", DType::kI64, {huge, 0}}}), {}).ok());
}

TEST(Spec, NoRanksNamedMeansAllOfThem) {
  EXPECT_THAT(ResolveRanks({}, 3).value(), ElementsAre(0, 1, 2));
}

TEST(Spec, RanksNamedKeepTheirOrder) {
  EXPECT_THAT(ResolveRanks({2, 0}, 3).value(), ElementsAre(2, 0));
}

TEST(Spec, ARankOutsideOrTwiceIsRefusedByNumber) {
  ExpectInvalid(ResolveRanks({0, 3}, 3).status(), HasSubstr("rank 3"));
  ExpectInvalid(ResolveRanks({-1}, 3).status(), HasSubstr("rank -1"));
  ExpectInvalid(ResolveRanks({1, 0, 1}, 3).status(),
                AllOf(HasSubstr("rank 1"), HasSubstr("twice")));
}

}  // namespace
}  // namespace cpshard
