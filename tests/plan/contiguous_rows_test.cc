// Contract 4.2 as the layouts that add to it use it.
#include "core/plan/contiguous_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/plan/partition.h"
#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

const SharedOptions kPadId{.padding_token_id = 9};

absl::StatusOr<ShardPlan> Finished(absl::StatusOr<ContiguousRows> rows) {
  if (!rows.ok()) return rows.status();
  absl::Status status = rows->CutAllButPaddingMask();
  if (status.ok()) status = rows->streams().CutPaddingMask();
  ShardPlan plan;
  if (status.ok()) status = rows->Finish(plan);
  if (!status.ok()) return status;
  return plan;
}

ShardPlan PlanOfRows(absl::StatusOr<ContiguousRows> rows) {
  absl::StatusOr<ShardPlan> plan = Finished(std::move(rows));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ShardPlan();
}

std::vector<std::string> NamesOf(const ShardPlan& plan) {
  std::vector<std::string> names;
  for (const StreamPlan& stream : plan.streams) names.push_back(stream.name);
  return names;
}

TEST(ContiguousRows, FinishedAsTheyAreMakeTheContiguousLayout) {
  const BatchSpec spec = TokenBatch(
      2, 5, {{"attention_mask", DType::kI64, {2, 5}}, {"loss_mask", DType::kF32, {2, 5}}});
  EXPECT_EQ(PlanOfRows(ContiguousRows::Begin(spec, kPadId, {.pad_multiple = 3})),
            PlanOf(Contiguous({.pad_multiple = 3}, kPadId), spec));
}

TEST(ContiguousRows, PadToAMultipleOfTheGroupTimesTheirOwn) {
  const BatchSpec spec = TokenBatch(1, 5);
  for (const auto& [pad_multiple, padded] : std::vector<std::pair<int64_t, int64_t>>{
           {INT64_MIN, 8}, {0, 8}, {1, 8}, {2, 8}, {3, 6}, {4, 8}, {5, 10}}) {
    const absl::StatusOr<ContiguousRows> rows =
        ContiguousRows::Begin(spec, kPadId, {.pad_multiple = pad_multiple});
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->padded_len(), padded) << pad_multiple;
    EXPECT_EQ(rows->rows().length, 5);
  }
}

TEST(ContiguousRows, StandOnTheColumnsThatTheLayoutMakes) {
  const BatchSpec spec = TokenBatch(2, 5);
  const ShardPlan plan = PlanOfRows(
      ContiguousRows::BeginWith(spec, kPadId, Primary::kCut, {}, [](const TokenRows& rows) {
        LayoutPlan layout = TailPadded(rows, 7);
        layout.partition = WholePartition(7, 2);
        return absl::StatusOr<LayoutPlan>(std::move(layout));
      }));
  EXPECT_EQ(plan.chunks[0].placement[0].ToString(), "0+5 .+2");
  EXPECT_EQ(OutputSpec(plan, StreamOf(plan, "input_ids"), 0).dims, (std::vector<int64_t>{2, 7}));
}

TEST(ContiguousRows, ALayoutThatCannotBeMadeIsRefusedInItsOwnWords) {
  const absl::StatusOr<ContiguousRows> rows =
      ContiguousRows::BeginWith(TokenBatch(2, 5), kPadId, Primary::kCut, {}, [](const TokenRows&) {
        return absl::StatusOr<LayoutPlan>(absl::UnimplementedError("not so"));
      });
  EXPECT_EQ(rows.status(), absl::UnimplementedError("not so"));
}

// Contract 4.10: the layout's own extra streams give way to the caller's.
TEST(ContiguousRows, OwnExtraStreamsAreCutWhereTheBatchHasThem) {
  const std::vector<ExtraStream> own = {{"ids", 1, int64_t{7}}};
  const BatchSpec with = TokenBatch(1, 5, {{"ids", DType::kI64, {1, 5}}});
  EXPECT_EQ(StreamOf(PlanOfRows(ContiguousRows::Begin(with, kPadId, {}, own)), "ids").fill,
            (Fill{Fill::Kind::kConstant, Element{7}}));
  SharedOptions callers = kPadId;
  callers.extra_streams = {{"ids", 1, int64_t{3}}};
  EXPECT_EQ(StreamOf(PlanOfRows(ContiguousRows::Begin(with, callers, {}, own)), "ids").fill,
            (Fill{Fill::Kind::kConstant, Element{3}}));
  EXPECT_FALSE(
      HasStream(PlanOfRows(ContiguousRows::Begin(TokenBatch(1, 5), kPadId, {}, own)), "ids"));
}

TEST(ContiguousRows, ALayoutMayAddStreamsOfItsOwn) {
  const BatchSpec spec = TokenBatch(1, 5);
  absl::StatusOr<ContiguousRows> rows = ContiguousRows::Begin(spec, kPadId, {});
  ASSERT_TRUE(rows.ok());
  StreamPlan ones{"ones", DType::kI32, {1, 5}};
  ones.value.from = Generated{{{{1, 0, 5}}}};
  rows->streams().Add(ones, int64_t{0});
  const ShardPlan plan = PlanOfRows(std::move(rows));
  EXPECT_EQ(NamesOf(plan),
            (std::vector<std::string>{"input_ids", "labels", "ones", "position_ids"}));
  ones.fill = {Fill::Kind::kConstant, Element{0}};
  EXPECT_EQ(StreamOf(plan, "ones"), ones);
}

TEST(ContiguousRows, ARefusalNamesWhatIsMissingOrTooLarge) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  struct Refusal {
    BatchSpec spec;
    SharedOptions shared;
    ContiguousOptions options;
    std::vector<std::string> parts;
  };
  const std::vector<Refusal> refusals = {
      {Without(TokenBatch(1, 5), "labels"), kPadId, {}, {"neither 'labels' nor a 'loss_mask'"}},
      {Without(TokenBatch(1, 5), "input_ids"), kPadId, {}, {"exactly one of", "neither"}},
      {TokenBatch(1, 5),
       {},
       {},
       {"'input_ids'", "3 padding columns", "5 -> 8", "padding_token_id"}},
      {TokenBatch(1, 5),
       kPadId,
       {.pad_multiple = kHuge},
       {"cp_size * pad_multiple", "2 * 4611686018427387904"}},
      {TokenBatch(1, 5),
       {.padding_token_id = 0, .extra_streams = {{"x"}}},
       {},
       {"'x'", "declared"}},
  };
  for (const Refusal& refusal : refusals) {
    const absl::StatusOr<ShardPlan> plan =
        Finished(ContiguousRows::Begin(refusal.spec, refusal.shared, refusal.options));
    ASSERT_FALSE(plan.ok()) << refusal.parts[0];
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : refusal.parts) {
      EXPECT_THAT(std::string(plan.status().message()), HasSubstr(part));
    }
  }
}

TEST(ContiguousRows, NoPadIdIsNeededWhereNoIdIsFilled) {
  EXPECT_TRUE(Finished(ContiguousRows::Begin(TokenBatch(1, 8), {}, {})).ok());
  EXPECT_TRUE(
      Finished(ContiguousRows::Begin(TokenBatch(1, 5), {}, {.primary = Primary::kLeaveFull})).ok());
  EXPECT_TRUE(Finished(ContiguousRows::Begin(With(Without(TokenBatch(1, 5), "input_ids"),
                                                  {"inputs_embeds", DType::kF32, {1, 5, 4}}),
                                             {}, {}))
                  .ok());
}

}  // namespace
}  // namespace cpshard
