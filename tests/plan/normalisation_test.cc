// What the row layouts make of positions, masks and fills, sentence by sentence (contract 2.2-2.5),
// for contiguous and round robin, with the primary cut and left whole. See also token_rows_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "core/plan/half.h"
#include "tests/plan/specs.h"

namespace cpshard {
namespace {

Sharder Contiguous(Primary primary = Primary::kCut) {
  return cpshard::Contiguous({.primary = primary}, {.padding_token_id = 0});
}

std::vector<Sharder> AllRowLayouts() {
  return {Contiguous(), Contiguous(Primary::kLeaveFull), RoundRobin({}),
          RoundRobin({.primary = Primary::kLeaveFull})};
}

BatchSpec WithPositions(int64_t rows, DType dtype, std::vector<int64_t> dims) {
  return TokenBatch(rows, 6, {{"position_ids", dtype, std::move(dims)}});
}

ViewOf::How HowOf(const StreamPlan& stream) { return std::get<ViewOf>(stream.value.from).how; }

// The low bytes of an element as one number.
uint64_t Bits(const StreamPlan& stream) {
  const int64_t width = 8 * ItemSize(stream.dtype);
  const uint64_t bits = stream.fill.value.bits;
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

// `value` as an element of `dtype`.
uint64_t BitsOf(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return FloatToF16Bits(static_cast<float>(value));
    case DType::kBF16:
      return FloatToBf16Bits(static_cast<float>(value));
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kF64:
      return std::bit_cast<uint64_t>(static_cast<double>(value));
    default:
      return ItemSize(dtype) == 8
                 ? static_cast<uint64_t>(value)
                 : static_cast<uint64_t>(value) & ((uint64_t{1} << (8 * ItemSize(dtype))) - 1);
  }
}

constexpr DType kSigned[] = {DType::kI8,  DType::kI16,  DType::kI32, DType::kI64,
                             DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

// 2.2: "returns the very same tensor": without fill columns there is no fill, in any layout.
TEST(Normalisation, ALengthThatDividesNeedsNoFill) {
  for (const Sharder& sharder : AllRowLayouts()) {
    const ShardPlan plan = PlanOf(sharder, TokenBatch(2, 8,
                                                      {{"loss_mask", DType::kF32, {2, 8}},
                                                       {"padding_mask", DType::kBool, {2, 8}},
                                                       {"position_ids", DType::kBool, {2, 8}}}));
    EXPECT_EQ(plan.chunks.at(0).padded_len, 8);
    for (const StreamPlan& stream : plan.streams) EXPECT_EQ(stream.fill, Fill()) << stream.name;
  }
}

// 2.2 and the table of 4.2, for every dtype that can hold the value.
TEST(Normalisation, ContiguousConvertsEveryFillToTheDTypeOfItsStream) {
  const auto stream = [](const char* name, DType dtype) {
    return StreamOf(PlanOf(Contiguous(), With(TokenBatch(2, 6), {name, dtype, {2, 6}})), name);
  };
  for (DType dtype : kSigned) {
    EXPECT_EQ(Bits(stream("labels", dtype)), BitsOf(-100, dtype)) << DTypeName(dtype);
  }
  for (DType dtype : kAllDTypes) {
    EXPECT_EQ(Bits(stream("padding_mask", dtype)), BitsOf(1, dtype)) << DTypeName(dtype);
    EXPECT_EQ(Bits(stream("loss_mask", dtype)), 0u) << DTypeName(dtype);
    EXPECT_EQ(Bits(stream("input_ids", dtype)), 0u) << DTypeName(dtype);
  }
}

// 4.2 step 4: in the place of labels a loss mask is filled as labels are (T5), in its own dtype.
TEST(Normalisation, ALossMaskForLabelsIsFilledAsLabelsAre) {
  for (DType dtype : kAllDTypes) {
    const BatchSpec spec = Without(TokenBatch(2, 6, {{"loss_mask", dtype, {2, 6}}}), "labels");
    if (IsUnsigned(dtype)) {
      ExpectRefused(Contiguous(), spec, {"labels", "-100", std::string(DTypeName(dtype))});
      continue;
    }
    const StreamPlan labels = StreamOf(PlanOf(Contiguous(), spec), "labels");
    EXPECT_EQ(labels.dtype, dtype);
    EXPECT_EQ(Bits(labels), BitsOf(-100, dtype)) << DTypeName(dtype);
  }
}

// 4.2 step 4, D8: labels that are there keep their place, and the loss mask its own.
TEST(Normalisation, ALossMaskBesideLabelsStaysALossMask) {
  const BatchSpec spec = TokenBatch(2, 6, {{"loss_mask", DType::kF32, {2, 6}}});
  for (const Sharder& sharder : AllRowLayouts()) {
    const ShardPlan plan = PlanOf(sharder, spec);
    EXPECT_EQ(std::get<ViewOf>(StreamOf(plan, "labels").value.from).source, "labels");
    EXPECT_EQ(std::get<ViewOf>(StreamOf(plan, "loss_mask").value.from).source, "loss_mask");
  }
}

// 2.3: "the same dtype", whatever it is; the last column of every leading index is its own.
TEST(Normalisation, ContiguousContinuesPositionsOfEveryShapeAndDType) {
  for (DType dtype : kAllDTypes) {
    for (const std::vector<int64_t>& dims :
         std::vector<std::vector<int64_t>>{{2, 6}, {1, 6}, {3, 2, 6}, {3, 1, 6}, {2, 3, 6}}) {
      const BatchSpec spec = WithPositions(2, dtype, dims);
      if (dtype == DType::kBool) {
        ExpectRefused(Contiguous(), spec, {"position_ids", "bool", "6 -> 8 columns", "integers"});
        continue;
      }
      const StreamPlan stream = StreamOf(PlanOf(Contiguous(), spec), "position_ids");
      EXPECT_EQ(stream.fill.kind, Fill::Kind::kContinue);
      EXPECT_EQ(stream.dtype, dtype);
    }
  }
}

TEST(Normalisation, RoundRobinFillsPositionsOfEveryShapeAndDTypeWithZero) {
  for (Primary primary : {Primary::kCut, Primary::kLeaveFull}) {
    for (DType dtype : kAllDTypes) {
      for (const std::vector<int64_t>& dims :
           std::vector<std::vector<int64_t>>{{2, 6}, {1, 6}, {3, 2, 6}, {3, 1, 6}, {2, 3, 6}}) {
        const StreamPlan stream =
            StreamOf(PlanOf(RoundRobin({.primary = primary}), WithPositions(2, dtype, dims)),
                     "position_ids");
        EXPECT_EQ(stream.fill, (Fill{Fill::Kind::kConstant, {0}}));
        EXPECT_EQ(stream.dtype, dtype);
      }
    }
  }
}

// 2.4 step 1: int64, B rows, whatever the primary is and whether it is cut.
TEST(Normalisation, EveryRowLayoutMakesThePositionsThatWereNotSent) {
  for (const Sharder& sharder : AllRowLayouts()) {
    const BatchSpec embeds =
        With(Without(TokenBatch(3, 6), "input_ids"), {"inputs_embeds", DType::kBF16, {3, 6, 4}});
    for (const BatchSpec& spec : {TokenBatch(3, 6), embeds}) {
      const StreamPlan stream = StreamOf(PlanOf(sharder, spec), "position_ids");
      EXPECT_EQ(stream.dtype, DType::kI64);
      EXPECT_EQ(stream.dims, (std::vector<int64_t>{3, 6}));
      const Generated& made = std::get<Generated>(stream.value.from);
      ASSERT_EQ(made.rows.size(), 1u);  // all rows alike
      EXPECT_THAT(made.rows[0],
                  testing::ElementsAre(Segment{0, 1, made.over_padded_columns ? 8 : 6}));
    }
  }
}

// 2.4 step 2: two axes, the first 1, and B > 1. Nothing else is expanded.
TEST(Normalisation, EveryRowLayoutExpandsOneRowOfPositionsAndNothingElse) {
  for (const Sharder& sharder : AllRowLayouts()) {
    const auto positions = [&](int64_t rows, std::vector<int64_t> dims) {
      return StreamOf(PlanOf(sharder, WithPositions(rows, DType::kI64, std::move(dims))),
                      "position_ids");
    };
    EXPECT_EQ(HowOf(positions(3, {1, 6})), ViewOf::How::kBroadcastRow);
    EXPECT_EQ(positions(3, {1, 6}).dims, (std::vector<int64_t>{3, 6}));
    for (int64_t rows : {1, 0}) {
      EXPECT_EQ(HowOf(positions(rows, {1, 6})), ViewOf::How::kColumns) << rows;
      EXPECT_EQ(positions(rows, {1, 6}).dims, (std::vector<int64_t>{1, 6})) << rows;
    }
    EXPECT_EQ(HowOf(positions(3, {3, 1, 6})), ViewOf::How::kColumns);
    EXPECT_EQ(positions(3, {3, 1, 6}).dims, (std::vector<int64_t>{3, 1, 6}));
  }
}

// 2.4 step 3: axis 2 of three axes, of any first size; otherwise axis 1.
TEST(Normalisation, EveryRowLayoutCutsPositionsOnTheirSequenceAxis) {
  for (const Sharder& sharder : AllRowLayouts()) {
    const auto axis = [&](std::vector<int64_t> dims) {
      return StreamOf(PlanOf(sharder, WithPositions(2, DType::kI64, std::move(dims))),
                      "position_ids")
          .axis;
    };
    EXPECT_EQ(axis({2, 6}), 1);
    EXPECT_EQ(axis({2, 6, 1, 1}), 1);
    for (int64_t first : {1, 2, 3, 4, 7}) EXPECT_EQ(axis({first, 2, 6}), 2) << first;
    EXPECT_EQ(axis({2, 3, 6}), 2);  // [B, 3, S]
    EXPECT_EQ(axis({6, 2, 6}), 2);  // not the axis that is as long as S by chance
  }
}

// 2.5: "always remove attention_mask"; derived where the key padding_mask is absent.
TEST(Normalisation, ContiguousReadsEveryKindOfMask) {
  struct Kind {
    DType dtype;
    std::vector<int64_t> dims;
    Op op;
    ViewOf::How how;
  };
  using How = ViewOf::How;
  const std::vector<Kind> kinds = {
      {DType::kBool, {2, 6}, Op::kIsZero, How::kColumns},
      {DType::kI64, {2, 6}, Op::kIsZero, How::kColumns},  // indexed packing values too
      {DType::kF32, {2, 6}, Op::kIsZero, How::kColumns},
      {DType::kBool, {2, 6, 6}, Op::kIsZero, How::kColumns},  // three axes are not rejected
      {DType::kI8, {2, 6, 9}, Op::kIsZero, How::kColumns},
      {DType::kF16, {2, 6, 1}, Op::kIsZero, How::kColumns},
      {DType::kI64, {2, 6, 2, 2, 2}, Op::kIsZero, How::kColumns},  // nor is any other number
      {DType::kBool, {2, 1, 6, 6}, Op::kIsZero, How::kHeadZeroDiagonal},
      {DType::kBool, {2, 3, 6, 9}, Op::kIsZero, How::kHeadZeroDiagonal},  // Q < K
      {DType::kBool, {2, 3, 9, 6}, Op::kIsZero, How::kHeadZeroDiagonal},  // Q > K
      {DType::kF64, {2, 1, 6, 6}, Op::kNotZero, How::kHeadZeroDiagonal},
      {DType::kBF16, {2, 3, 6, 9}, Op::kNotZero, How::kHeadZeroDiagonal},
      {DType::kF32, {2, 3, 9, 6}, Op::kNotZero, How::kHeadZeroDiagonal},
  };
  for (Primary primary : {Primary::kCut, Primary::kLeaveFull}) {
    for (const Kind& kind : kinds) {
      SCOPED_TRACE(std::string(DTypeName(kind.dtype)) + DimsString(kind.dims));
      const ShardPlan plan = PlanOf(Contiguous(primary),
                                    TokenBatch(2, 6, {{"attention_mask", kind.dtype, kind.dims}}));
      EXPECT_FALSE(HasStream(plan, "attention_mask"));
      const StreamPlan stream = StreamOf(plan, "padding_mask");
      EXPECT_EQ(stream.dtype, DType::kBool);
      EXPECT_EQ(stream.value.op, kind.op);
      EXPECT_EQ(HowOf(stream), kind.how);
      EXPECT_EQ(stream.fill, (Fill{Fill::Kind::kConstant, {1}}));
    }
  }
}

// 2.5: "Idempotent": what came out goes in again as it is.
TEST(Normalisation, ADerivedPaddingMaskIsTakenAsItIs) {
  const ShardPlan first =
      PlanOf(Contiguous(), TokenBatch(2, 6, {{"attention_mask", DType::kI64, {2, 6}}}));
  const StreamPlan derived = StreamOf(first, "padding_mask");
  const ShardPlan again =
      PlanOf(Contiguous(), TokenBatch(2, 6, {{"padding_mask", derived.dtype, derived.dims}}));
  const StreamPlan stream = StreamOf(again, "padding_mask");
  EXPECT_EQ(stream.value.op, Op::kNone);
  EXPECT_EQ(HowOf(stream), ViewOf::How::kColumns);
  EXPECT_EQ(stream.fill, derived.fill);
}

// 2.5 is of the contiguous family: round robin drops every kind unread, and makes no mask of it.
TEST(Normalisation, RoundRobinMakesNoPaddingMaskOfAnAttentionMask) {
  for (Primary primary : {Primary::kCut, Primary::kLeaveFull}) {
    for (const std::vector<int64_t>& dims :
         std::vector<std::vector<int64_t>>{{2, 6}, {2, 1, 6, 6}, {9}, {}}) {
      const ShardPlan plan = PlanOf(RoundRobin({.primary = primary}),
                                    TokenBatch(2, 6, {{"attention_mask", DType::kI64, dims}}));
      EXPECT_FALSE(HasStream(plan, "attention_mask"));
      EXPECT_FALSE(HasStream(plan, "padding_mask"));
    }
  }
}

}  // namespace
}  // namespace cpshard
