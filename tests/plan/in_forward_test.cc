// In-forward sharding, contract 4.6.
#include "core/plan/in_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

const TensorSpec kEmbeds{"inputs_embeds", DType::kF32, {2, 6, 4}};

ShardPlan InForward(const TensorSpec& tensor, const InForwardOptions& options,
                    std::optional<int64_t> cp_size) {
  absl::StatusOr<ShardPlan> plan = PlanInForward(tensor, options, cp_size);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ShardPlan();
}

TEST(InForward, RoundRobinAsText) {
  EXPECT_EQ(ToString(InForward(kEmbeds, {}, 2)),
            "cp_size 2\n"
            "layout rows 1, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+2 6+2\n"
            "  rank 1: 2+4\n"
            "stream inputs_embeds f32 [2, 6, 4] local\n");
}

TEST(InForward, ContiguousAsText) {
  EXPECT_EQ(ToString(InForward(kEmbeds, {.layout = InForwardLayout::kContiguous}, 2)),
            "cp_size 2\n"
            "layout rows 1, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+4\n"
            "  rank 1: 4+4\n"
            "stream inputs_embeds f32 [2, 6, 4] local\n");
}

// T21: without a mesh and alone there is no padding, unlike contiguous.
TEST(InForward, OneRankGetsTheTensorAsItIs) {
  for (std::optional<int64_t> cp_size : {std::optional<int64_t>(), {1}}) {
    for (InForwardLayout layout : {InForwardLayout::kRoundRobin, InForwardLayout::kContiguous}) {
      const ShardPlan plan = InForward({"x", DType::kU8, {3, 5}},
                                       {.layout = layout, .pad_value = int64_t{-1}}, cp_size);
      EXPECT_EQ(plan.chunks[0].padded_len, 5);
      EXPECT_EQ(plan.chunks[0].partition, std::vector<IndexMap>{IndexMap::Identity(5)});
      EXPECT_EQ(plan.streams[0].fill.kind, Fill::Kind::kNone);
    }
  }
}

TEST(InForward, PadMultipleIsOfContiguousAlone) {
  const auto padded = [](InForwardLayout layout, int64_t pad_multiple) {
    return InForward(kEmbeds, {.layout = layout, .pad_multiple = pad_multiple}, 2)
        .chunks[0]
        .padded_len;
  };
  EXPECT_EQ(padded(InForwardLayout::kRoundRobin, 16), 8);
  EXPECT_EQ(padded(InForwardLayout::kContiguous, 16), 32);
  for (int64_t acts_as_two : {int64_t{2}, int64_t{1}, int64_t{0}, int64_t{-3}}) {
    EXPECT_EQ(padded(InForwardLayout::kContiguous, acts_as_two), 8);
  }
}

TEST(InForward, CutsAnyAxisOfAnyRank) {
  const TensorSpec layers{"per_layer_inputs", DType::kBF16, {2, 3, 6, 5}};
  for (int64_t axis : {int64_t{2}, int64_t{-2}}) {
    const ShardPlan plan = InForward(layers, {.axis = axis}, 3);
    EXPECT_EQ(plan.streams[0].axis, 2);
    EXPECT_EQ(OutputSpec(plan, plan.streams[0], 1),
              (TensorSpec{"per_layer_inputs", DType::kBF16, {2, 3, 2, 5}}));
  }
  const ShardPlan flat = InForward({"ids", DType::kI64, {7}}, {.axis = 0}, 2);
  EXPECT_EQ(OutputSpec(flat, flat.streams[0], 0).dims, (std::vector<int64_t>{4}));
}

// Vision group ids of Gemma4 are padded with -1, masks with False.
TEST(InForward, FillsWithThePadInTheDTypeOfTheTensor) {
  const ShardPlan ids = InForward({"ids", DType::kI32, {1, 3}}, {.pad_value = int64_t{-1}}, 2);
  EXPECT_EQ(ids.streams[0].fill, (Fill{Fill::Kind::kConstant, Element{~uint64_t{0}}}));
  const ShardPlan mask = InForward({"mask", DType::kBool, {1, 3}}, {}, 2);
  EXPECT_EQ(mask.streams[0].fill, (Fill{Fill::Kind::kConstant, Element{0}}));
}

TEST(InForward, ALengthThatDividesNeedsNoPad) {
  const InForwardOptions options{.pad_value = std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(InForward({"x", DType::kI64, {1, 8}}, options, 2).streams[0].fill, Fill());
}

TEST(InForward, OfNoColumnsIsEmptyOnEveryRank) {
  const ShardPlan plan = InForward({"x", DType::kF32, {2, 0}}, {}, 3);
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 2).dims, (std::vector<int64_t>{2, 0}));
}

// Contract 15.3, 15.4: it lines up with the batch that left its primary whole.
TEST(InForward, IsTheLayoutThatTheBatchWasCutBy) {
  const TensorSpec ids{"input_ids", DType::kI64, {2, 11}};
  for (int64_t cp_size = 2; cp_size <= 4; ++cp_size) {
    BatchSpec spec = TokenBatch(2, 11);
    spec.cp_size = cp_size;
    const ShardPlan rows =
        PlanOf(Contiguous({.pad_multiple = 3, .primary = Primary::kLeaveFull}), spec);
    const ShardPlan row =
        InForward(ids, {.layout = InForwardLayout::kContiguous, .pad_multiple = 3}, cp_size);
    EXPECT_EQ(row.chunks[0].partition, rows.chunks[0].partition);
    const ShardPlan aux = PlanOf(RoundRobin({.primary = Primary::kLeaveFull}), spec);
    EXPECT_EQ(InForward(ids, {}, cp_size).chunks[0].partition, aux.chunks[0].partition);
  }
}

TEST(InForward, AGroupHasAtLeastOneRank) {
  for (const int64_t cp_size : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    const absl::Status status = PlanInForward(kEmbeds, {}, cp_size).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cp_size is " + std::to_string(cp_size)));
  }
}

TEST(InForward, RefusalsNameTheStreamAndTheNumbers) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  struct Refusal {
    TensorSpec tensor;
    InForwardOptions options;
    std::vector<std::string> parts;
  };
  const InForwardLayout contiguous = InForwardLayout::kContiguous;
  const std::vector<Refusal> refusals = {
      {{"x", DType::kF32, {2, 6}}, {.axis = 2}, {"'x'", "[2, 6]", "no axis 2"}},
      {{"x", DType::kF32, {2, 6}}, {.axis = -3}, {"'x'", "no axis -3"}},
      {{"x", DType::kF32, {}}, {.axis = 0}, {"'x'", "[]", "no axis 0"}},
      {{"x", DType::kF32, {2, 6}}, {.axis = INT64_MIN}, {"'x'", "no axis -9223372036854775808"}},
      {{"x", DType::kU8, {1, 3}}, {.pad_value = int64_t{-1}}, {"'x'", "-1", "u8"}},
      {{"x", DType::kI64, {1, 3}},
       {.pad_value = std::numeric_limits<double>::infinity()},
       {"'x'", "inf", "i64"}},
      {{"x", DType::kI64, {1, 3}},
       {.layout = contiguous, .pad_multiple = kHuge},
       {"4611686018427387904", "2"}},
      {{"x", DType::kI64, {0, INT64_MAX}}, {}, {"9223372036854775807"}},
  };
  for (const Refusal& refusal : refusals) {
    const absl::StatusOr<ShardPlan> plan = PlanInForward(refusal.tensor, refusal.options, 2);
    ASSERT_FALSE(plan.ok()) << refusal.parts.back();
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : refusal.parts) {
      EXPECT_THAT(std::string(plan.status().message()), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace cpshard
