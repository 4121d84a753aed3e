// How the layouts over [B, S] rows find, check and view the streams of a batch: contract 2.4, 2.5,
// 4.2, decisions D5, D6, D13, D17. Seen through the two layouts that use all of it.
#include "core/plan/token_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

Sharder Cut(SharedOptions shared = {}) {
  shared.padding_token_id = 0;
  return Contiguous({}, std::move(shared));
}

ViewOf ViewIn(const StreamPlan& stream) { return std::get<ViewOf>(stream.value.from); }

void ExpectBothRefuse(const BatchSpec& spec, const std::vector<std::string>& parts) {
  ExpectRefused(Cut(), spec, parts);
  ExpectRefused(RoundRobin({}), spec, parts);
}

TEST(TokenRows, ExactlyOnePrimaryIsNeeded) {
  ExpectBothRefuse(Without(TokenBatch(2, 6), "input_ids"), {"input_ids", "inputs_embeds"});
  ExpectBothRefuse(TokenBatch(2, 6, {{"inputs_embeds", DType::kF32, {2, 6, 4}}}),
                   {"input_ids", "inputs_embeds", "both"});
}

TEST(TokenRows, ThePrimaryHasRowsAndColumns) {
  ExpectBothRefuse(With(TokenBatch(2, 6), {"input_ids", DType::kI64, {6}}), {"input_ids", "[6]"});
  BatchSpec scalar = Without(TokenBatch(2, 6), "input_ids");
  scalar.scalars = {{"input_ids", int64_t{3}}};
  ExpectBothRefuse(scalar, {"input_ids", "scalar"});
}

TEST(TokenRows, AStreamThatIsCutHasTheRowsAndColumnsOfThePrimary) {
  for (const char* name : {"labels", "loss_mask", "padding_mask"}) {
    ExpectBothRefuse(With(TokenBatch(2, 6), {name, DType::kI64, {2, 5}}), {name, "5", "6"});
    ExpectBothRefuse(With(TokenBatch(2, 6), {name, DType::kI64, {3, 6}}), {name, "3", "2"});
    ExpectBothRefuse(With(TokenBatch(2, 6), {name, DType::kI64, {6}}), {name, "[6]"});
    EXPECT_EQ(
        StreamOf(PlanOf(Cut(), With(TokenBatch(2, 6), {name, DType::kI64, {2, 6, 4}})), name).dims,
        (std::vector<int64_t>{2, 6, 4}));
  }
}

TEST(TokenRows, AStreamThatIsNotCutMayHaveAnyShape) {
  const BatchSpec spec = TokenBatch(2, 6, {{"pixels", DType::kF32, {5}}});
  EXPECT_EQ(StreamOf(PlanOf(Cut(), spec), "pixels").extent, Extent::kWhole);
  // Round robin drops the mask, so it does not look at it.
  EXPECT_FALSE(
      HasStream(PlanOf(RoundRobin({}), TokenBatch(2, 6, {{"attention_mask", DType::kI64, {9}}})),
                "attention_mask"));
}

TEST(TokenRows, ALossMaskStandsInForMissingLabelsOnContiguousOnly) {
  BatchSpec spec = Without(TokenBatch(2, 6, {{"loss_mask", DType::kF32, {2, 6}}}), "labels");
  const ShardPlan plan = PlanOf(Cut(), spec);
  EXPECT_EQ(ViewIn(StreamOf(plan, "labels")).source, "loss_mask");
  EXPECT_EQ(StreamOf(plan, "labels").dtype, DType::kF32);
  EXPECT_FALSE(HasStream(plan, "loss_mask"));
  ExpectRefused(RoundRobin({}), spec, {"labels"});
  ExpectBothRefuse(Without(spec, "loss_mask"), {"labels"});
  // D5: promoted, it would need -100.
  ExpectRefused(Cut(), With(spec, {"loss_mask", DType::kBool, {2, 6}}), {"labels", "-100", "bool"});
}

TEST(TokenRows, MissingPositionsAreCreated) {
  const StreamPlan continued = StreamOf(PlanOf(Cut(), TokenBatch(2, 6)), "position_ids");
  EXPECT_EQ(continued.value.from, (decltype(continued.value.from))(Generated{{{{0, 1, 8}}}, true}));
  const StreamPlan filled = StreamOf(PlanOf(RoundRobin({}), TokenBatch(2, 6)), "position_ids");
  EXPECT_EQ(filled.value.from, (decltype(filled.value.from))(Generated{{{{0, 1, 6}}}, false}));
  EXPECT_EQ(filled.fill, (Fill{Fill::Kind::kConstant, {0}}));
  EXPECT_EQ(filled.dims, (std::vector<int64_t>{2, 6}));
}

TEST(TokenRows, OneRowOfPositionsStandsForEveryRow) {
  const StreamPlan stream = StreamOf(
      PlanOf(Cut(), TokenBatch(2, 6, {{"position_ids", DType::kI32, {1, 6}}})), "position_ids");
  EXPECT_EQ(ViewIn(stream).how, ViewOf::How::kBroadcastRow);
  EXPECT_EQ(stream.dims, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(stream.dtype, DType::kI32);
}

TEST(TokenRows, ThreeAxesOfPositionsAreCutOnTheLast) {
  const auto positions = [](std::vector<int64_t> dims) {
    return StreamOf(PlanOf(Cut(), TokenBatch(2, 6, {{"position_ids", DType::kI64, dims}})),
                    "position_ids");
  };
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{3, 2, 6}, {4, 2, 6}, {2, 3, 6}, {3, 1, 6}}) {
    const StreamPlan stream = positions(dims);
    EXPECT_EQ(stream.axis, 2);
    EXPECT_EQ(stream.dims, dims);  // nothing is expanded
    EXPECT_EQ(ViewIn(stream).how, ViewOf::How::kColumns);
  }
  EXPECT_EQ(positions({3, 2, 6}).batch_axis, 1);
  EXPECT_EQ(positions({2, 3, 6}).batch_axis, 0);
  EXPECT_EQ(positions({3, 1, 6}).batch_axis, -1);
}

TEST(TokenRows, PositionsOfAnotherShapeAreRefused) {
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{6}, {2, 5}, {3, 6}, {1, 5}, {3, 3, 6}, {3, 2, 5}, {}}) {
    ExpectBothRefuse(TokenBatch(2, 6, {{"position_ids", DType::kI64, dims}}),
                     {"position_ids", DimsString(dims)});
  }
}

TEST(TokenRows, AnAttentionMaskBecomesAPaddingMask) {
  const auto derived = [](TensorSpec mask) {
    const ShardPlan plan = PlanOf(Cut(), TokenBatch(2, 6, {std::move(mask)}));
    EXPECT_FALSE(HasStream(plan, "attention_mask"));
    const StreamPlan stream = StreamOf(plan, "padding_mask");
    EXPECT_EQ(stream.dtype, DType::kBool);
    EXPECT_EQ(stream.fill, (Fill{Fill::Kind::kConstant, {1}}));
    return stream;
  };
  for (DType dtype : kAllDTypes) {
    const StreamPlan stream = derived({"attention_mask", dtype, {2, 6}});
    EXPECT_EQ(stream.value.op, Op::kIsZero) << DTypeName(dtype);
    EXPECT_EQ(ViewIn(stream).how, ViewOf::How::kColumns);
  }
  for (DType dtype : {DType::kBool, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const StreamPlan stream = derived({"attention_mask", dtype, {2, 4, 6, 9}});
    EXPECT_EQ(stream.value.op, dtype == DType::kBool ? Op::kIsZero : Op::kNotZero);
    EXPECT_EQ(ViewIn(stream).how, ViewOf::How::kHeadZeroDiagonal);
    EXPECT_EQ(stream.dims, (std::vector<int64_t>{2, 6}));
  }
  EXPECT_EQ(derived({"attention_mask", DType::kI64, {2, 6, 3}}).dims,
            (std::vector<int64_t>{2, 6, 3}));
}

TEST(TokenRows, AFourDimensionalIntegerMaskIsRefused) {
  for (DType dtype : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    ExpectRefused(Cut(), TokenBatch(2, 6, {{"attention_mask", dtype, {2, 1, 6, 6}}}),
                  {"attention_mask", "[2, 1, 6, 6]", std::string(DTypeName(dtype))});
  }
  // D6 before the length.
  ExpectRefused(Cut(), TokenBatch(2, 6, {{"attention_mask", DType::kI64, {9, 1, 7, 7}}}), {"i64"});
}

TEST(TokenRows, AMaskOfAnotherShapeIsRefused) {
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {2, 5}, {3, 6}, {6}, {2, 1, 5, 6}, {2, 1, 6, 5}, {3, 1, 6, 6}, {2, 0, 6, 6}}) {
    ExpectRefused(Cut(), TokenBatch(2, 6, {{"attention_mask", DType::kF32, dims}}),
                  {"attention_mask", DimsString(dims)});
  }
}

TEST(TokenRows, AnExistingPaddingMaskWinsAndTheMaskIsNotLookedAt) {
  const ShardPlan plan = PlanOf(Cut(), TokenBatch(2, 6,
                                                  {{"attention_mask", DType::kI64, {9, 9, 9, 9}},
                                                   {"padding_mask", DType::kI32, {2, 6}}}));
  EXPECT_FALSE(HasStream(plan, "attention_mask"));
  EXPECT_EQ(ViewIn(StreamOf(plan, "padding_mask")).source, "padding_mask");
  EXPECT_EQ(StreamOf(plan, "padding_mask").value.op, Op::kNone);
}

TEST(TokenRows, AnExtraIsCutOnItsOwnAxisAndFilledWithItsOwnPad) {
  const auto extra = [](int64_t axis, std::optional<Number> pad) {
    return StreamOf(PlanOf(Cut({.extra_streams = {{"x", axis, pad}}}),
                           TokenBatch(2, 6, {{"x", DType::kI16, {2, 6, 6}}})),
                    "x");
  };
  EXPECT_EQ(extra(1, std::nullopt).axis, 1);
  EXPECT_EQ(extra(1, std::nullopt).fill, (Fill{Fill::Kind::kConstant, {0}}));
  EXPECT_EQ(extra(-1, std::nullopt).axis, 2);
  EXPECT_EQ(extra(2, int64_t{5}).fill, (Fill{Fill::Kind::kConstant, {5}}));
}

TEST(TokenRows, AnExtraWithoutItsAxisItsLengthOrItsStreamIsRefused) {
  const BatchSpec spec = TokenBatch(2, 6, {{"x", DType::kI16, {9, 6}}});
  for (int64_t axis : {2, 5, -3}) {
    ExpectRefused(Cut({.extra_streams = {{"x", axis}}}), spec, {"x", std::to_string(axis)});
  }
  ExpectRefused(Cut({.extra_streams = {{"x", 0}}}), spec, {"x", "9", "6"});
  ExpectRefused(Cut({.extra_streams = {{"y"}}}), spec, {"y"});
  PlanOf(Cut({.extra_streams = {{"x", 1}}}), spec);  // its rows are its own (D5)
  ExpectRefused(Cut({.extra_streams = {{"x", 1, 1e9}}}), spec, {"x", "1e+09", "i16"});
}

TEST(TokenRows, AnExtraThatTheLayoutHandlesAnywayChangesNothing) {
  const BatchSpec spec = TokenBatch(2, 6, {{"padding_mask", DType::kBool, {2, 6}}});
  const ShardPlan plain = PlanOf(Cut(), spec);
  for (const char* name : {"input_ids", "labels", "position_ids", "padding_mask", "loss_mask"}) {
    EXPECT_EQ(PlanOf(Cut({.extra_streams = {{name, 0, int64_t{77}}}}), spec), plain) << name;
  }
}

TEST(TokenRows, AnExtraNamedAttentionMaskIsRefusedSinceTheMaskIsTakenOutFirst) {
  const SharedOptions extra{.padding_token_id = 0, .extra_streams = {{"attention_mask", 1}}};
  const BatchSpec with_mask = TokenBatch(2, 6, {{"attention_mask", DType::kI64, {2, 6}}});
  for (const BatchSpec& spec : {with_mask, TokenBatch(2, 6)}) {
    ExpectRefused(Contiguous({}, extra), spec, {"attention_mask"});
    ExpectRefused(RoundRobin({}, extra), spec, {"attention_mask"});
  }
}

TEST(TokenRows, AScalarAttentionMaskIsDroppedLikeATensor) {
  BatchSpec spec = TokenBatch(2, 6, {{"padding_mask", DType::kBool, {2, 6}}});
  spec.scalars = {{"attention_mask", int64_t{7}}, {"note", std::string("kept")}};
  const std::vector<ScalarEntry> kept = {{"note", std::string("kept")}};
  EXPECT_EQ(ScalarsOf(PlanOf(Cut(), spec), 0), kept);
  EXPECT_EQ(ScalarsOf(PlanOf(RoundRobin({}), spec), 0), kept);
}

TEST(TokenRows, AStreamThatIsAbsentIsNamedBeforeOneOfAnotherShape) {
  const BatchSpec spec = Without(With(TokenBatch(2, 6), {"input_ids", DType::kI64, {6}}), "labels");
  ExpectBothRefuse(spec, {"labels"});
  const SharedOptions extra{.padding_token_id = 0, .extra_streams = {{"route", 1}}};
  const BatchSpec short_labels = With(TokenBatch(2, 6), {"labels", DType::kI64, {2, 5}});
  ExpectRefused(Contiguous({}, extra), short_labels, {"route"});
  ExpectRefused(RoundRobin({}, extra), short_labels, {"route"});
}

TEST(TokenRows, AnExtraMayNameThePrimaryThatTheLayoutLeaves) {
  const SharedOptions extra{.extra_streams = {{"input_ids", 1}}};
  const ShardPlan plan =
      PlanOf(Contiguous({.primary = Primary::kLeaveFull}, extra), TokenBatch(2, 6));
  EXPECT_EQ(StreamOf(plan, "input_ids").extent, Extent::kLocal);
}

}  // namespace
}  // namespace cpshard
