// Token verbs as plans, contract 9.2 and 4.18. The cases R.. are those of the corpus.
#include "core/plan/token_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ClosedForm = HeldColumns::ClosedForm;
using Ranks = std::vector<std::vector<Run>>;

HeldColumns Over(ClosedForm closed_form, int64_t cp_size) { return {{}, closed_form, cp_size}; }

HeldColumns Captured(int64_t columns, const Ranks& ranks) {
  CapturedMap captured{columns, {}};
  for (const std::vector<Run>& runs : ranks) {
    captured.maps.emplace_back();
    for (const Run& run : runs) captured.maps.back().Append(run);
  }
  HeldColumns map;
  map.cp_size = static_cast<int64_t>(ranks.size());
  map.captured = std::move(captured);
  return map;
}

ShardLayout Says(std::optional<int64_t> original, std::optional<int64_t> padded) {
  ShardLayout layout;
  layout.original_seq_len = original;
  layout.padded_seq_len = padded;
  return layout;
}

std::string PlanText(const ShardLayout& layout, const HeldColumns& map, const TensorSpec& tensor,
                     const ShardTokenOptions& options) {
  const absl::StatusOr<ShardPlan> plan = PlanShardToken(layout, map, tensor, options);
  return plan.ok() ? ToString(*plan) : plan.status().ToString();
}

// R2
TEST(TokenTensor, AnOriginalLengthIsPadded) {
  EXPECT_EQ(PlanText(Says(6, 8), Over(ClosedForm::kRoundRobin, 2), {"t", DType::kF32, {1, 6}},
                     {.fill = -1.0}),
            "cp_size 2\n"
            "layout rows 1, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+2 6+2\n"
            "  rank 1: 2+4\n"
            "stream t f32 [1, 6] local\n");
}

// R7, with a second row.
TEST(TokenTensor, RowsAreRepositioned) {
  ShardLayout layout = Says({}, 4);
  layout.input_token_stream_positions = IntArray{{2, 3}, {0, 2, -1, 3, 1, 0}};
  EXPECT_EQ(PlanText(layout, Over(ClosedForm::kContiguous, 2), {"t", DType::kF32, {2, 3}},
                     {.seq_dim = 7, .fill = 0.5}),
            "cp_size 2\n"
            "layout rows 2, source_len 3, padded_len 4\n"
            "  placement 0: 0+1 .+1 1+1 .+1\n"
            "  placement 1: 2+1 1+1 .+1 0+1\n"
            "  rank 0: 0+2\n"
            "  rank 1: 2+2\n"
            "stream t f32 [2, 3] local\n");
}

// R12
TEST(TokenTensor, RowsOfAFlatStreamAreMerged) {
  ShardLayout layout = Says({}, 8);
  layout.input_row_shape = IntArray{{2}, {2, 4}};
  const TensorSpec tensor{"t", DType::kF32, {2, 4, 2}};
  const HeldColumns map = Captured(8, {{{0, 1}, {3, 2}, {7, 1}}, {{1, 2}, {5, 2}}});
  const absl::StatusOr<ShardPlan> plan = PlanShardToken(layout, map, tensor, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(ToString(*plan),
            "cp_size 2\n"
            "layout rows 1, source_len 8, padded_len 8\n"
            "  placement 0: 0+8\n"
            "  rank 0: 0+1 3+2 7+1\n"
            "  rank 1: 1+2 5+2\n"
            "stream t f32 [8, 2] local\n");
  EXPECT_EQ(plan->streams[0].axis, 0);
}

TEST(TokenTensor, MergedRowsArePaddedToo) {
  ShardLayout layout = Says(6, 8);
  layout.input_row_shape = IntArray{{2}, {2, 3}};
  EXPECT_EQ(PlanText(layout, Over(ClosedForm::kContiguous, 2), {"t", DType::kF32, {2, 3, 5}},
                     {.fill = int64_t{1}}),
            "cp_size 2\n"
            "layout rows 1, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+4\n"
            "  rank 1: 4+4\n"
            "stream t f32 [6, 5] local\n");
}

// Notes of 9.2: a fill that nothing needs is not looked at.
TEST(TokenTensor, AFillThatNothingNeedsIsIgnored) {
  for (const Number& fill : {Number(int64_t{-1}), Number(1e300)}) {
    const absl::StatusOr<ShardPlan> plan = PlanShardToken(
        Says(6, 8), Over(ClosedForm::kContiguous, 2), {"t", DType::kU8, {1, 8}}, {.fill = fill});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->streams[0].fill.kind, Fill::Kind::kNone);
  }
}

// 4.18: ranks of two columns, the four before them.
TEST(TokenTensor, ALeftHaloIsWhatStandsBeforeARank) {
  const absl::StatusOr<ShardPlan> plan = PlanLeftHalo({"x", DType::kF32, {2, 6, 5}}, 4, 3);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(ToString(*plan),
            "cp_size 3\n"
            "layout rows 1, source_len 6, padded_len 10\n"
            "  placement 0: .+4 0+6\n"
            "  rank 0: 0+4\n"
            "  rank 1: 2+4\n"
            "  rank 2: 4+4\n"
            "stream x f32 [2, 6, 5] local\n");
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

TEST(TokenTensor, ARefusalNamesTheStreamAndItsNumbers) {
  const auto refusal = [](const ShardLayout& layout, const HeldColumns& map,
                          const TensorSpec& tensor, const ShardTokenOptions& options) {
    return PlanShardToken(layout, map, tensor, options).status();
  };
  const HeldColumns two = Over(ClosedForm::kContiguous, 2);
  const TensorSpec six{"t", DType::kU8, {1, 6}};
  ExpectRefused(refusal(Says(6, 8), two, six, {}), kPrecondition, {"stream 't'", "[1, 6]", "8"});
  ExpectRefused(refusal(Says(6, 8), two, six, {.fill = int64_t{-100}}), kInvalid,
                {"'t'", "-100", "u8"});
  ExpectRefused(refusal(Says(6, 8), two, six, {.seq_dim = 2}), kInvalid, {"'t'", "axis 2"});
  ExpectRefused(refusal(Says(6, 6), Over(ClosedForm::kRoundRobin, 2), six, {}), kInvalid,
                {"'t'", "6", "4"});
  ExpectRefused(refusal({}, HeldColumns(), six, {}), kPrecondition, {"'t'", "data-dependent"});
  for (const int64_t cp_size : {int64_t{0}, int64_t{-2}, int64_t{4097}, INT64_MAX}) {
    ExpectRefused(refusal({}, Over(ClosedForm::kRoundRobin, cp_size), six, {}), kInvalid,
                  {std::to_string(cp_size), "4096"});
  }
}

// A record comes from a peer or a file: it may be anything.
TEST(TokenTensor, PositionsThatAreNoPlacementAreRefused) {
  const TensorSpec tensor{"t", DType::kF32, {1, 3}};
  const auto refusal = [&](IntArray positions, int64_t padded) {
    ShardLayout layout = Says({}, padded);
    layout.input_token_stream_positions = std::move(positions);
    return PlanShardToken(layout, Over(ClosedForm::kContiguous, 2), tensor, {.fill = int64_t{0}})
        .status();
  };
  EXPECT_TRUE(refusal({{1, 3}, {0, 3, -1}}, 4).ok());
  ExpectRefused(refusal({{1, 3}, {0, 4, -1}}, 4), kPrecondition, {"row 0", "padded_seq_len=4"});
  ExpectRefused(refusal({{1, 3}, {2, 1, 2}}, 4), kPrecondition, {"row 0", "twice"});
  ExpectRefused(refusal({{1, 3}, {0, 1}}, 4), kPrecondition, {"2 elements", "[1, 3]"});
  ExpectRefused(refusal({{3}, {0, 1, 2}}, 4), kPrecondition, {"[3]"});
  ExpectRefused(refusal({{-1, -3}, {0, 1, 2}}, 4), kPrecondition, {"[-1, -3]"});
  ExpectRefused(refusal({{INT64_MAX, 2}, {0, 1}}, 4), kPrecondition, {"[9223372036854775807, 2]"});
}

TEST(TokenTensor, ARowShapeThatBeliesItsOwnShapeIsRefused) {
  const TensorSpec tensor{"t", DType::kF32, {2, 4}};
  const auto refusal = [&](IntArray rows) {
    ShardLayout layout = Says({}, 8);
    layout.input_row_shape = std::move(rows);
    return PlanShardToken(layout, Over(ClosedForm::kContiguous, 2), tensor, {}).status();
  };
  EXPECT_TRUE(refusal({{2}, {2, 4}}).ok());
  ExpectRefused(refusal({{3}, {2, 4}}), kPrecondition, {"2 elements", "[3]"});
  ExpectRefused(refusal({{1, 2}, {2, 4}}), kPrecondition, {"2 elements", "[1, 2]"});
}

TEST(TokenTensor, CapturedMapsStayWithinTheirColumns) {
  const TensorSpec tensor{"t", DType::kF32, {4}};
  const auto refusal = [&](const Ranks& ranks) {
    return PlanShardToken({}, Captured(4, ranks), tensor, {.seq_dim = 0}).status();
  };
  EXPECT_TRUE(refusal({{{0, 2}}, {{1, 1}, {1, 1}}}).ok());  // clamped ones may repeat (T50)
  ExpectRefused(refusal({{{0, 2}}, {{3, 2}}}), kPrecondition, {"rank 1", "2 columns from 3", "4"});
  ExpectRefused(refusal({{{INT64_MAX - 1, 1}}}), kPrecondition, {"9223372036854775806"});
  ExpectRefused(refusal({{{kFill, 1}}}), kPrecondition, {"rank 0", "-1"});
}

ShardLayout RecordOf(int64_t rank, int64_t cp_size, std::vector<Run> runs) {
  ShardLayout layout;
  layout.cp_rank = rank;
  layout.cp_size = cp_size;
  layout.runs = std::move(runs);
  return layout;
}

TEST(TokenTensor, ARecordAloneKnowsHowLongTheStreamIs) {
  ShardLayout record = RecordOf(1, 3, {{4, 2}});
  const std::vector<ShardLayout> one = {record};
  EXPECT_EQ(CapturedMapOf(one)->columns, 6);
  record.padded_seq_len = 9;  // uneven shards
  const std::vector<ShardLayout> reported = {record};
  EXPECT_EQ(CapturedMapOf(reported)->columns, 9);
  EXPECT_EQ(CapturedMapOf(reported)->maps[0].ToString(), "4+2");
}

TEST(TokenTensor, RecordsThatAreNoneAreRefused) {
  const auto refusal = [](std::vector<ShardLayout> records) {
    return CapturedMapOf(records).status();
  };
  ExpectRefused(refusal({}), kPrecondition, {"no layout"});
  ExpectRefused(refusal({RecordOf(0, 2, {})}), kPrecondition, {"no layout"});
  ExpectRefused(refusal({RecordOf(0, 1, {{0, -1}})}), kInvalid, {"rank 0", "-1"});
  ExpectRefused(refusal({RecordOf(0, 1, {{3, 2}})}), kInvalid, {"3"});
  ExpectRefused(refusal({RecordOf(0, INT64_MAX, {{0, 3}})}), kInvalid, {"9223372036854775807"});
  const int64_t half = int64_t{1} << 62;
  ExpectRefused(refusal({RecordOf(0, 2, {{0, half}}), RecordOf(1, 2, {{0, half}})}), kInvalid,
                {"rank 1", "4611686018427387904"});
}

TEST(TokenTensor, ALeftHaloTakesSlicesOfThreeAxes) {
  const auto refusal = [](std::vector<int64_t> dims, int64_t history, int64_t cp_size) {
    return PlanLeftHalo({"x", DType::kF32, std::move(dims)}, history, cp_size).status();
  };
  EXPECT_TRUE(refusal({2, 6, 5}, 0, 3).ok());
  ExpectRefused(refusal({2, 6}, 1, 3), kInvalid, {"'x'", "[2, 6]", "history 1", "3 ranks"});
  ExpectRefused(refusal({2, 6, 5}, -1, 3), kInvalid, {"history -1"});
  ExpectRefused(refusal({2, 6, 5}, 1, 4), kInvalid, {"[2, 6, 5]", "4 ranks"});
  ExpectRefused(refusal({2, 6, 5}, INT64_MAX, 3), kInvalid, {"9223372036854775807"});
  ExpectRefused(refusal({2, 6, 5}, 1, 0), kInvalid, {"cp_size is 0"});
}

}  // namespace
}  // namespace cpshard
