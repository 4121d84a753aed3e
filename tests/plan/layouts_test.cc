// A few plans written by hand, compared as whole values or as text: contiguous (contract 4.2),
// round robin (4.3), aux-only (4.4), identity (4.1).
#include "core/plan/layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::IsEmpty;

constexpr SharedOptions PadId(int64_t id) { return {.padding_token_id = id}; }

Fill Constant(uint64_t bits) { return {Fill::Kind::kConstant, {bits}}; }
constexpr uint64_t kMinus100 = static_cast<uint64_t>(int64_t{-100});

StreamPlan Viewed(const TensorSpec& tensor, Fill fill) {
  StreamPlan stream{tensor.name, tensor.dtype, tensor.dims};
  stream.value.from = ViewOf{tensor.name};
  stream.fill = fill;
  return stream;
}

StreamPlan AsSent(const TensorSpec& tensor) {
  StreamPlan stream = Viewed(tensor, {});
  stream.extent = Extent::kWhole;
  return stream;
}

TEST(Layouts, ContiguousAsAWholeValue) {
  const BatchSpec spec = TokenBatch(3, 5, {{"pixel_values", DType::kF32, {7, 2}}});

  IndexMap placement = IndexMap::Identity(5), first, second;
  placement.Append({kFill, 3});
  first.Append({0, 4});
  second.Append({4, 4});
  LayoutPlan layout;
  layout.rows = 3;
  layout.source_len = 5;
  layout.padded_len = 8;
  layout.placement = {placement};
  layout.partition = {first, second};
  layout.report.original_seq_len = 5;
  layout.report.padded_seq_len = 8;
  StreamPlan positions{"position_ids", DType::kI64, {3, 5}};
  positions.value.from = Generated{{{{0, 1, 8}}}, true};
  ShardPlan expected;
  expected.cp_size = 2;
  expected.chunks = {layout};
  expected.streams = {Viewed(spec.tensors[0], Constant(9)),
                      Viewed(spec.tensors[1], Constant(kMinus100)), AsSent(spec.tensors[2]),
                      positions};

  ShardPlan plan = PlanOf(Contiguous({}, PadId(9)), spec);
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_THAT(plan.chunks[0].padded_to, testing::HasSubstr("cp_size 2"));
  plan.chunks[0].padded_to.clear();  // words for a message
  EXPECT_EQ(plan, expected) << ToString(plan);
}

TEST(Layouts, RoundRobinAsText) {
  EXPECT_EQ(ToString(PlanOf(RoundRobin({}), TokenBatch(2, 6,
                                                       {{"loss_mask", DType::kI32, {2, 6}},
                                                        {"attention_mask", DType::kI64, {2, 6}},
                                                        {"pixel_values", DType::kF32, {7, 2}}}))),
            "cp_size 2\n"
            "layout rows 2, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+2 6+2\n"
            "  rank 1: 2+4\n"
            "stream input_ids i64 [2, 6] local\n"
            "stream labels i64 [2, 6] local\n"
            "stream loss_mask i32 [2, 6] local\n"
            "stream pixel_values f32 [7, 2] whole\n"
            "stream position_ids i64 [2, 6] local\n");
}

TEST(Layouts, AuxOnlyDiffersFromRoundRobinInThePrimaryAlone) {
  const BatchSpec spec = TokenBatch(2, 6, {{"padding_mask", DType::kBool, {2, 6}}});
  ShardPlan expected = PlanOf(RoundRobin({}), spec);
  expected.streams[0] = AsSent(spec.tensors[0]);
  EXPECT_EQ(PlanOf(RoundRobin({.primary = Primary::kLeaveFull}), spec), expected);
}

TEST(Layouts, ContiguousThatLeavesThePrimaryDiffersInThePrimaryAlone) {
  const BatchSpec spec = TokenBatch(2, 6, {{"padding_mask", DType::kBool, {2, 6}}});
  ShardPlan expected = PlanOf(Contiguous({}, PadId(0)), spec);
  expected.streams[0] = AsSent(spec.tensors[0]);
  // No padding_token_id: nothing is filled with it.
  EXPECT_EQ(PlanOf(Contiguous({.primary = Primary::kLeaveFull}), spec), expected);
}

TEST(Layouts, IdentityAsText) {
  EXPECT_EQ(ToString(PlanOf(Identity(), TokenBatch(2, 6, {{"loss_mask", DType::kI32, {2, 9}}}))),
            "cp_size 2\n"
            "layout rows 2, source_len 6, padded_len 6\n"
            "  placement 0: 0+6\n"
            "  rank 0: 0+6\n"
            "  rank 1: 0+6\n"
            "stream input_ids i64 [2, 6] whole\n"
            "stream labels i64 [2, 6] whole\n"
            "stream loss_mask i32 [2, 9] whole\n");
}

TEST(Layouts, IdentityReportsTheLengthOfTheEmbeddingsWhereBothPrimariesAreThere) {
  const ShardPlan plan =
      PlanOf(Identity(), TokenBatch(2, 6, {{"inputs_embeds", DType::kF32, {2, 9, 4}}}));
  EXPECT_EQ(plan.chunks.at(0).report.original_seq_len, 9);
  EXPECT_EQ(plan.chunks.at(0).report.padded_seq_len, 9);
}

TEST(Layouts, IdentityReportsNoLayoutWithoutATokenAxis) {
  EXPECT_THAT(PlanOf(Identity(), {}).chunks, IsEmpty());
  BatchSpec spec;
  spec.tensors = {{"input_ids", DType::kI64, {6}}};
  EXPECT_THAT(PlanOf(Identity(), spec).chunks, IsEmpty());
  // The key inputs_embeds decides, though input_ids would do.
  EXPECT_THAT(PlanOf(Identity(), TokenBatch(2, 6, {{"inputs_embeds", DType::kF32, {9}}})).chunks,
              IsEmpty());
}

TEST(Layouts, ScalarsAreInEveryOutput) {
  BatchSpec spec = TokenBatch(1, 4);
  spec.scalars = {{"step", int64_t{17}}, {"qkv_format", std::string("bshd")}};
  for (const Sharder& sharder : {Identity(), Contiguous({}), RoundRobin({})}) {
    EXPECT_EQ(ScalarsOf(PlanOf(sharder, spec), 1), spec.scalars);
  }
}

// contract 2.1: the multiple of cp * max(m, 2), at cp 1 too; 0 and negative act as 2.
TEST(Layouts, ContiguousPadsToItsOwnDivisor) {
  const auto padded = [](int64_t length, int64_t cp, int64_t multiple) {
    BatchSpec spec = TokenBatch(1, length);
    spec.cp_size = cp;
    return PlanOf(Contiguous({.pad_multiple = multiple}, PadId(0)), spec).chunks.at(0).padded_len;
  };
  for (int64_t multiple : {-3, 0, 1, 2}) {
    EXPECT_EQ(padded(5, 1, multiple), 6);
    EXPECT_EQ(padded(5, 4, multiple), 8);
  }
  EXPECT_EQ(padded(5, 1, 3), 6);
  EXPECT_EQ(padded(13, 4, 3), 24);
  EXPECT_EQ(padded(24, 4, 3), 24);
  EXPECT_EQ(padded(0, 4, 3), 0);
}

TEST(Layouts, RoundRobinPadsToTwiceTheGroup) {
  const auto padded = [](int64_t length, int64_t cp) {
    BatchSpec spec = TokenBatch(1, length);
    spec.cp_size = cp;
    return PlanOf(RoundRobin({}), spec).chunks.at(0).padded_len;
  };
  EXPECT_EQ(padded(5, 1), 6);
  EXPECT_EQ(padded(5, 4), 8);
  EXPECT_EQ(padded(9, 4), 16);
  EXPECT_EQ(padded(0, 4), 0);
}

TEST(Layouts, AFillIsConvertedOnlyWhereThereAreFillColumns) {
  const auto labels = [](int64_t length, DType dtype) {
    return With(TokenBatch(1, length), {"labels", dtype, {1, length}});
  };
  for (const Sharder& sharder : {Contiguous({}, PadId(0)), RoundRobin({}, PadId(0))}) {
    for (DType dtype : {DType::kBool, DType::kU8}) {  // neither holds -100
      const ShardPlan plan = PlanOf(sharder, labels(8, dtype));
      EXPECT_EQ(StreamOf(plan, "labels").fill, Fill());
      ExpectRefused(sharder, labels(6, dtype), {"labels", "-100", std::string(DTypeName(dtype))});
    }
  }
  // A padding id that the dtype cannot hold, or none at all.
  const auto ids = [](int64_t length) {
    return With(TokenBatch(1, length), {"input_ids", DType::kU8, {1, length}});
  };
  PlanOf(Contiguous({}, PadId(300)), ids(8));
  ExpectRefused(Contiguous({}, PadId(300)), ids(6), {"input_ids", "300", "u8"});
  PlanOf(Contiguous({}), ids(8));
  ExpectRefused(Contiguous({}), ids(6), {"input_ids", "padding_token_id", "6", "8"});
}

// contract 4.3 step 5: the dtype decides first.
TEST(Layouts, RoundRobinFillsFloatsWithZeroWhateverTheirName) {
  const auto fill = [](const std::string& name, DType dtype) {
    return StreamOf(PlanOf(RoundRobin({}, PadId(7)), With(TokenBatch(1, 6), {name, dtype, {1, 6}})),
                    name)
        .fill;
  };
  for (const char* name : {"input_ids", "labels", "loss_mask", "padding_mask", "position_ids"}) {
    EXPECT_EQ(fill(name, DType::kF32), Constant(0)) << name;
    EXPECT_EQ(fill(name, DType::kBF16), Constant(0)) << name;
  }
  EXPECT_EQ(fill("labels", DType::kI64), Constant(kMinus100));
  EXPECT_EQ(fill("padding_mask", DType::kBool), Constant(1));
  EXPECT_EQ(fill("padding_mask", DType::kI32), Constant(1));
  EXPECT_EQ(fill("input_ids", DType::kI64), Constant(0));  // the padding id is not used
  EXPECT_EQ(fill("position_ids", DType::kI64), Constant(0));
  EXPECT_EQ(fill("loss_mask", DType::kI64), Constant(0));
}

TEST(Layouts, ContiguousFillsByName) {
  const auto fill = [](const std::string& name, DType dtype) {
    return StreamOf(PlanOf(Contiguous({}, PadId(7)), With(TokenBatch(1, 6), {name, dtype, {1, 6}})),
                    name)
        .fill;
  };
  EXPECT_EQ(fill("input_ids", DType::kI64), Constant(7));
  EXPECT_EQ(fill("labels", DType::kF32), Constant(std::bit_cast<uint32_t>(-100.0f)));
  EXPECT_EQ(fill("labels", DType::kI64), Constant(kMinus100));
  EXPECT_EQ(fill("padding_mask", DType::kBool), Constant(1));
  EXPECT_EQ(fill("loss_mask", DType::kF32), Constant(0));
  EXPECT_EQ(fill("position_ids", DType::kI32).kind, Fill::Kind::kContinue);
}

TEST(Layouts, EmbeddingsAreFilledWithZeroAndNeedNoPaddingId) {
  const BatchSpec spec =
      With(Without(TokenBatch(2, 6), "input_ids"), {"inputs_embeds", DType::kBF16, {2, 6, 16}});
  EXPECT_EQ(StreamOf(PlanOf(Contiguous({}), spec), "inputs_embeds").fill, Constant(0));
  EXPECT_EQ(StreamOf(PlanOf(RoundRobin({}), spec), "inputs_embeds").fill, Constant(0));
}

}  // namespace
}  // namespace cpshard
