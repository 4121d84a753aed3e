// The option targets as a plan: what it reads, which token goes where, what it refuses (contract
// 4.19). Which bytes come of it: tests/exec/targets_test.cc.
#include "core/plan/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/plan/sequence_ids.h"
#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The batch without position_ids, on a layout that takes everything as it is.
PackedBatch Plain(int64_t rows, int64_t length) {
  return PackedBatch(rows, length).Remove("position_ids");
}

Sharder Made(TargetsOptions options = {}) { return WithTargets(Identity(), options); }

std::vector<IndexMap> ColumnsOf(const StreamPlan& stream) {
  return std::get<ViewOf>(stream.value.from).columns;
}

// The source columns of a target, row by row, -1 where there is none.
std::vector<std::vector<int64_t>> Shifted(const PackedBatch& batch, int64_t depth = 1) {
  const absl::StatusOr<ShardPlan> plan = batch.PlanBy(Made({.num_depths = depth}));
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  std::vector<std::vector<int64_t>> rows;
  for (const IndexMap& map : ColumnsOf(StreamOf(*plan, "targets." + std::to_string(depth - 1)))) {
    rows.push_back(map.Expand());
  }
  return rows;
}

void ExpectRefusal(const PackedBatch& batch, const Sharder& sharder,
                   const std::vector<std::string>& parts) {
  const absl::Status status = batch.PlanBy(sharder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

PackedBatch WithBoundaries(const std::string& name, std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return Plain(1, 6).Set({name, DType::kI32, {count}}, std::move(values));
}

TEST(Targets, AreFourStreamsADepthBesideTheLayoutsOwn) {
  const BatchSpec spec = TokenBatch(2, 4);
  const ShardPlan plan = PlanOf(WithTargets(Contiguous({}), {.num_depths = 2}), spec);
  std::vector<std::string> names;
  for (const StreamPlan& stream : plan.streams) names.push_back(stream.name);
  EXPECT_THAT(names, ElementsAre("input_ids", "labels", "position_ids", "target_input_ids.0",
                                 "target_position_ids.0", "targets.0", "valid_masks.0",
                                 "target_input_ids.1", "target_position_ids.1", "targets.1",
                                 "valid_masks.1"));
}

TEST(Targets, LeaveTheRestOfThePlanAsTheLayoutMakesIt) {
  for (const BatchSpec& spec :
       {TokenBatch(2, 5), TokenBatch(2, 5, {{"position_ids", DType::kI32, {1, 5}}}),
        TokenBatch(2, 5, {{"position_ids", DType::kI32, {2, 5}}})}) {
    const Sharder inner = Contiguous({}, {.padding_token_id = 0});
    ShardPlan plan = PlanOf(WithTargets(inner, {.num_depths = 3}), spec);
    plan.streams.resize(plan.streams.size() - 12);
    EXPECT_EQ(plan, PlanOf(inner, spec));
  }
}

TEST(Targets, KeepTheDTypesOfWhatTheyShow) {
  const BatchSpec spec = With(With(TokenBatch(2, 4, {{"position_ids", DType::kI16, {2, 4}}}),
                                   {"input_ids", DType::kU8, {2, 4}}),
                              {"labels", DType::kI32, {2, 4}});
  const ShardPlan plan = PlanOf(WithTargets(Contiguous({}), {.ignore_index = -7}), spec);
  EXPECT_EQ(StreamOf(plan, "target_input_ids.0").dtype, DType::kU8);
  EXPECT_EQ(StreamOf(plan, "target_position_ids.0").dtype, DType::kI16);
  EXPECT_EQ(StreamOf(plan, "targets.0").dtype, DType::kI32);
  EXPECT_EQ(StreamOf(plan, "valid_masks.0").dtype, DType::kBool);
  EXPECT_EQ(static_cast<int32_t>(StreamOf(plan, "targets.0").fill.value.bits), -7);
  EXPECT_EQ(StreamOf(plan, "target_input_ids.0").fill.value.bits, 0u);
}

TEST(Targets, WithoutIdsAreOneMapForAllRows) {
  EXPECT_THAT(Shifted(Plain(3, 4)), ElementsAre(ElementsAre(1, 2, 3, -1)));
  EXPECT_THAT(Shifted(Plain(3, 4), 3), ElementsAre(ElementsAre(3, -1, -1, -1)));
  EXPECT_THAT(Shifted(Plain(3, 2), 5), ElementsAre(ElementsAre(-1, -1)));
}

TEST(Targets, GoByIdsPerTokenWhereverTheyComeBack) {
  for (const char* name : {"seq_idx", "_packed_seq_ids"}) {
    const PackedBatch batch =
        Plain(2, 4).Set({name, DType::kI32, {2, 4}}, {4, 4, 5, 4, 0, -1, -1, -1});
    EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(1, -1, -1, -1), ElementsAre(-1, 2, 3, -1)));
    EXPECT_THAT(Shifted(batch, 2),
                ElementsAre(ElementsAre(-1, 3, -1, -1), ElementsAre(-1, 3, -1, -1)));
    const PackedBatch flat = Plain(1, 4).Set({name, DType::kBool, {4}}, {1, 1, 0, 0});
    EXPECT_THAT(Shifted(flat), ElementsAre(ElementsAre(1, -1, 3, -1)));
  }
}

TEST(Targets, GoByPaddedLengthsAndTakeUnusedPlacesForNothing) {
  const PackedBatch batch = Plain(2, 5).Padded({{2, 0, -7, 3}, {1, 4}}).Real({{1, 1}, {1, 1}});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(1, -1, 3, 4, -1),  //
                                          ElementsAre(-1, 2, 3, 4, -1)));
}

TEST(Targets, TakeWhatLengthsLeaveOfARowForASequence) {
  const PackedBatch batch = Plain(2, 6).Real({{2, 1}, {}});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(1, -1, -1, 4, 5, -1),  //
                                          ElementsAre(1, 2, 3, 4, 5, -1)));
}

TEST(Targets, GoByBoundariesOfOneRow) {
  for (const char* name : {"cu_seqlens", "cu_seqlens_padded"}) {
    const auto columns = ElementsAre(ElementsAre(1, -1, 3, 4, 5, -1));
    EXPECT_THAT(Shifted(WithBoundaries(name, {0, 2, 6, -1000})), columns);
    EXPECT_THAT(Shifted(WithBoundaries(name, {0, 2, 2, 6})), columns);
    const auto one = ElementsAre(ElementsAre(1, 2, 3, 4, 5, -1));
    EXPECT_THAT(Shifted(WithBoundaries(name, {0, 6})), one);
    EXPECT_THAT(Shifted(WithBoundaries(name, {6})), one);
    EXPECT_THAT(Shifted(WithBoundaries(name, {-1000, -1000})), one);
  }
}

TEST(Targets, GoByPaddedBoundariesThatEndElsewhere) {
  EXPECT_THAT(Shifted(WithBoundaries("cu_seqlens_padded", {0, 2, 4})),
              ElementsAre(ElementsAre(1, -1, 3, -1, 5, -1)));
  EXPECT_THAT(Shifted(WithBoundaries("cu_seqlens_padded", {0, 2, 9})),
              ElementsAre(ElementsAre(1, -1, 3, 4, 5, -1)));
}

TEST(Targets, GoByTheFirstStreamThatIsThere) {
  PackedBatch batch = Plain(1, 4).Real({{3, 1}});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(1, 2, -1, -1)));
  batch.Set({"cu_seqlens", DType::kI32, {3}}, {0, 1, 4});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(-1, 2, 3, -1)));
  batch.Set({"cu_seqlens_padded", DType::kI32, {3}}, {0, 2, 4});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(1, -1, 3, -1)));
  batch.Padded({{4}});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(1, 2, 3, -1)));
  batch.Set({"_packed_seq_ids", DType::kI64, {1, 4}}, {1, 2, 3, 3});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(-1, -1, 3, -1)));
  batch.Set({"seq_idx", DType::kI64, {1, 4}}, {1, 1, 2, 3});
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(1, -1, -1, -1)));
  batch.SetScalar("seq_idx", int64_t{3});  // no tensor
  EXPECT_THAT(Shifted(batch), ElementsAre(ElementsAre(-1, -1, 3, -1)));
}

TEST(Targets, OfAFlatStreamAreOneMapOverAllItsRows) {
  const PackedBatch batch = PackedBatch(2, 4).Real({{4}, {4}}).Padded({{4}, {4}});
  const ShardPlan plan = *batch.PlanBy(WithTargets(Thd({}), {}));
  const StreamPlan targets = StreamOf(plan, "targets.0");
  EXPECT_THAT(targets.dims, ElementsAre(8));
  EXPECT_EQ(targets.axis, 0);
  ASSERT_EQ(ColumnsOf(targets).size(), 1u);
  EXPECT_THAT(ColumnsOf(targets)[0].Expand(), ElementsAre(1, 2, 3, -1, 5, 6, 7, -1));
}

TEST(Targets, GiveTheLayoutThePositionsOfEveryRow) {
  const Sharder thd = WithTargets(Thd({}), {});
  PackedBatch batch = PackedBatch(2, 4).Real({{4}, {4}});
  EXPECT_TRUE(batch.PlanBy(Thd({})).ok());
  batch.Remove("position_ids");
  EXPECT_FALSE(batch.PlanBy(Thd({})).ok());
  const ShardPlan made = *batch.PlanBy(thd);
  EXPECT_EQ(StreamOf(made, "position_ids").value.from,
            (decltype(Expression::from)(Generated{{{{0, 1, 4}, {0, 1, 4}}}})));
  batch.Set({"position_ids", DType::kI64, {1, 4}});
  const ShardPlan repeated = *batch.PlanBy(thd);
  EXPECT_THAT(ColumnsOf(StreamOf(repeated, "position_ids"))[0].Expand(),
              ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST(Targets, ReadTheStreamThatTellsSequencesAndWhatTheLayoutReads) {
  PackedBatch batch = PackedBatch(2, 4).Real({{4}, {4}}).Padded({{4}, {4}});
  EXPECT_THAT(Made().Needs(batch.spec()), ElementsAre("seq_lens_padded"));
  EXPECT_THAT(WithTargets(Thd({}), {}).Needs(batch.spec()),
              ElementsAre("seq_lens", "seq_lens_padded"));
  batch.Set({"seq_idx", DType::kI64, {2, 4}});
  EXPECT_THAT(WithTargets(Thd({}), {}).Needs(batch.spec()),
              ElementsAre("seq_lens", "seq_lens_padded", "seq_idx"));
  EXPECT_THAT(Made().Needs(TokenBatch(2, 4)), IsEmpty());
}

TEST(Targets, RefuseDepthsThatTheyCannotMake) {
  for (const int64_t depths : {int64_t{0}, int64_t{-1}, kMaxTargetDepths + 1}) {
    ExpectRefusal(Plain(2, 4), Made({.num_depths = depths}),
                  {"num_depths " + std::to_string(depths), "1 to 64"});
  }
  EXPECT_TRUE(Plain(2, 4).PlanBy(Made({.num_depths = kMaxTargetDepths})).ok());
}

TEST(Targets, RefuseBatchesWithoutIdsAndLabelsOfOneShape) {
  ExpectRefusal(Plain(2, 4).Remove("labels"), Made(), {"'labels'", "[B, S]"});
  ExpectRefusal(Plain(2, 4).Remove("input_ids"), Made(), {"'input_ids'", "[B, S]"});
  ExpectRefusal(Plain(2, 4).SetScalar("labels", int64_t{1}), Made(), {"'labels'"});
  ExpectRefusal(Plain(2, 4).Set({"labels", DType::kI64, {2, 5}}), Made(), {"[2, 5]", "[2, 4]"});
  ExpectRefusal(Plain(2, 4).Set({"input_ids", DType::kI64, {2, 4, 3}}), Made(), {"[2, 4, 3]"});
  ExpectRefusal(Plain(2, 4).Set({"input_ids", DType::kI64, {4}}), Made(), {"[4]"});
}

TEST(Targets, RefusePositionsOfOtherShapes) {
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {}, {4}, {2, 5}, {3, 4}, {3, 1, 4}, {2, 3, 4}, {3, 2, 5}, {1, 2, 4, 1}}) {
    ExpectRefusal(Plain(2, 4).Set({"position_ids", DType::kI64, dims}), Made(),
                  {"'position_ids'", DimsString(dims)});
  }
  ExpectRefusal(Plain(2, 4).SetScalar("position_ids", int64_t{1}), Made(), {"scalar"});
}

TEST(Targets, RefuseIdsOfOtherShapesAndDTypes) {
  for (const char* name : {"seq_idx", "_packed_seq_ids"}) {
    for (const std::vector<int64_t>& dims :
         std::vector<std::vector<int64_t>>{{}, {4}, {8}, {1, 4}, {2, 5}, {2, 4, 1}}) {
      std::vector<int64_t> values(Product(dims), 1);
      ExpectRefusal(Plain(2, 4).Set({name, DType::kI64, dims}, values), Made(),
                    {name, DimsString(dims)});
    }
    ExpectRefusal(Plain(2, 4).Set({name, DType::kF32, {2, 4}}, std::vector<int64_t>(8)), Made(),
                  {name, "integers"});
  }
}

TEST(Targets, RefuseLengthsThatDoNotFitTheirRow) {
  for (const char* name : {"seq_lens_padded", "seq_lens"}) {
    ExpectRefusal(Plain(2, 4).Lengths(name, {{4}, {2, 3}}), Made(), {name, "row 1", "3", "2 of S"});
    ExpectRefusal(Plain(1, 4).Lengths(name, {{1, INT64_MAX}}), Made(), {name, "row 0"});
    ExpectRefusal(Plain(2, 4).Lengths(name, {{4}}), Made(), {name, "[1, 1]", "2 rows"});
  }
}

TEST(Targets, RefuseBoundariesThatDoNotDivideTheRow) {
  ExpectRefusal(WithBoundaries("cu_seqlens", {0, 5}), Made(), {"ends at 5", "S = 6"});
  ExpectRefusal(WithBoundaries("cu_seqlens", {0, 7}), Made(), {"ends at 7"});
  for (const char* name : {"cu_seqlens", "cu_seqlens_padded"}) {
    ExpectRefusal(WithBoundaries(name, {0, 4, 2, 6}), Made(), {name, "4 is followed by 2"});
    ExpectRefusal(Plain(2, 4).Set({name, DType::kI32, {2}}, {0, 4}), Made(), {name, "one row"});
  }
}

TEST(Targets, RefuseAnIgnoreIndexThatLabelsCannotHold) {
  ExpectRefusal(Plain(2, 4).Set({"labels", DType::kU8, {2, 4}}), Made(), {"targets.0", "-100"});
  ExpectRefusal(Plain(2, 4).Set({"labels", DType::kI8, {2, 4}}), Made({.ignore_index = 200}),
                {"200"});
  EXPECT_TRUE(
      Plain(2, 4).Set({"labels", DType::kU8, {2, 4}}).PlanBy(Made({.ignore_index = 255})).ok());
}

TEST(Targets, RefuseABatchThatHasEntriesOfTheirNames) {
  for (const char* name :
       {"target_input_ids.1", "target_position_ids.0", "targets.1", "valid_masks.0"}) {
    ExpectRefusal(Plain(2, 4).Set({name, DType::kI64, {1}}), Made({.num_depths = 2}), {name});
  }
  EXPECT_TRUE(Plain(2, 4).Set({"targets.1", DType::kI64, {1}}).PlanBy(Made()).ok());
}

TEST(Targets, RefuseMoreRunsThanAPlanMayHold) {
  const int64_t length = kMaxTargetRuns + 2;
  std::vector<int64_t> ids(length);
  for (int64_t s = 0; s < length; ++s) ids[s] = s / 2;  // pairs
  ExpectRefusal(Plain(1, length).Set({"seq_idx", DType::kI64, {1, length}}, ids), Made(),
                {"runs up to depth 1", std::to_string(kMaxTargetRuns)});
  ExpectRefusal(Plain(kMaxTargetRuns + 1, 1), Made(), {"rows are"});
}

// Without columns there are no runs, but there still is a map for every row and depth.
TEST(Targets, CountTheMapsOfRowsWithoutColumns) {
  for (const int64_t rows : {kMaxTargetRuns / 64 + 1, kMaxTargetRuns}) {
    for (const char* name : {"seq_idx", "seq_lens"}) {
      ExpectRefusal(Plain(rows, 0).Set({name, DType::kI64, {rows, 0}}), Made({.num_depths = 64}),
                    {"rows times depths are " + std::to_string(64 * rows), "2097152"});
    }
    EXPECT_TRUE(Plain(rows, 0).PlanBy(Made({.num_depths = 64})).ok());  // one map for all rows
  }
  const PackedBatch few = Plain(1000, 0).Set({"seq_idx", DType::kI64, {1000, 0}});
  EXPECT_TRUE(few.PlanBy(Made({.num_depths = 2})).ok());
}

// They are kept one by one, though sequences of one token make one run of no targets.
TEST(Targets, RefuseMoreSequencesThanTheyTake) {
  const int64_t length = kMaxSequences + 1;
  std::vector<int64_t> lengths(length, 1);
  ExpectRefusal(Plain(1, length).Set({"seq_lens", DType::kU8, {1, length}}, lengths), Made(),
                {"'seq_lens' u8[1, 2097153]", "2097152", "seq_idx"});
  lengths.back() = 0;
  EXPECT_TRUE(
      Plain(1, length).Set({"seq_lens", DType::kU8, {1, length}}, lengths).PlanBy(Made()).ok());
  ExpectRefusal(
      Plain(1, 4).Set({"cu_seqlens", DType::kI8, {length}}, std::vector<int64_t>(length, -1)),
      Made(), {"'cu_seqlens' i8[2097153]", "2097152"});
}

TEST(Targets, RefuseWhatTheLayoutRefuses) {
  const PackedBatch batch = PackedBatch(2, 6).Real({{6}, {6}});
  const absl::Status alone = batch.PlanBy(Thd({})).status();
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(batch.PlanBy(WithTargets(Thd({}), {})).status(), alone);
}

TEST(Targets, OfABatchWithoutTokensAreEmpty) {
  for (const auto& [rows, length] : {std::pair<int64_t, int64_t>{0, 4}, {2, 0}}) {
    const ShardPlan plan =
        PlanOf(WithTargets(Contiguous({}), {.num_depths = 2}), TokenBatch(rows, length));
    EXPECT_EQ(OutputSpec(plan, StreamOf(plan, "targets.1"), 1).dims,
              OutputSpec(plan, StreamOf(plan, "labels"), 1).dims);
  }
}

}  // namespace
}  // namespace cpshard
