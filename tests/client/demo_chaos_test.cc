// The verdict of `cpshard demo --chaos` must see what is wrong, and its kills must be in the
// middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/cli/demo/chaos_report.h"
#include "client/cli/demo/chaos_schedule.h"
#include "client/cli/demo/chaos_tally.h"

namespace cpshard::demo {
namespace {

using ::testing::HasSubstr;

class ChaosTallyTest : public ::testing::Test {
 protected:
  // Two ranks, three steps of one microbatch: batch "b<step>", shards "s<step><rank>".
  static ChaosTally Tally() {
    return {
        {{{"b0"}, {{"s00"}, {"s01"}}}, {{"b1"}, {{"s10"}, {"s11"}}}, {{"b2"}, {{"s20"}, {"s21"}}}},
        2};
  }
  static ChaosLine Step(int64_t rank, int64_t step) {
    return {.event = kStep,
            .at = {kTrain, 0, step},
            .batches = {absl::StrCat("b", step)},
            .shards = {absl::StrCat("s", step, rank)}};
  }
  static ChaosLine End(int64_t step) { return {.event = kEnd, .at = {kTrain, 0, step}}; }

  void AddAll(int64_t rank, std::vector<int64_t> steps, int64_t end) {
    for (int64_t step : steps) tally_.Add(rank, Step(rank, step));
    tally_.Add(rank, End(end));
  }

  ChaosTally tally_ = Tally();
};

TEST_F(ChaosTallyTest, EveryStepOnceInOrderAndThenTheEndIsEqual) {
  AddAll(0, {0, 1, 2}, 3);
  AddAll(1, {0, 1, 2}, 3);
  EXPECT_EQ(tally_.Difference(), "");
}

TEST_F(ChaosTallyTest, AStepThatComesTwiceIsADifference) {
  AddAll(0, {0, 1, 1, 2}, 3);
  AddAll(1, {0, 1, 2}, 3);
  EXPECT_EQ(tally_.Difference(), "rank 0, step 1: step 2 was to come");
}

TEST_F(ChaosTallyTest, AStepThatIsMissingIsADifference) {
  AddAll(0, {0, 1, 2}, 3);
  AddAll(1, {0, 2}, 3);
  EXPECT_EQ(tally_.Difference(), "rank 1, step 2: step 1 was to come");
}

TEST_F(ChaosTallyTest, ARankThatDoesNotComeToTheEndIsADifference) {
  AddAll(0, {0, 1, 2}, 3);
  for (int64_t step : {0, 1, 2}) tally_.Add(1, Step(1, step));
  EXPECT_THAT(tally_.Difference(), HasSubstr("rank 1: nothing came after 3 of 3 steps"));
}

TEST_F(ChaosTallyTest, AnEndThatComesTooEarlyIsADifference) {
  AddAll(0, {0, 1}, 2);
  EXPECT_THAT(tally_.Difference(), HasSubstr("rank 0, step 2: is said to be the end"));
}

TEST_F(ChaosTallyTest, AShardOfAnotherRankIsADifference) {
  tally_.Add(0, Step(1, 0));
  EXPECT_EQ(tally_.Difference(), "rank 0, step 0: other bytes than expected");
}

TEST_F(ChaosTallyTest, AnotherBatchIsADifference) {
  ChaosLine line = Step(0, 0);
  line.batches = {"b1"};
  tally_.Add(0, line);
  EXPECT_EQ(tally_.Difference(), "rank 0, step 0: other batches than expected");
}

TEST_F(ChaosTallyTest, WhatARankFindsIsADifference) {
  ChaosLine line = Step(0, 0);
  line.difference = "stream 'labels': element 3 differs";
  tally_.Add(0, line);
  EXPECT_EQ(tally_.Difference(), "rank 0, step 0: stream 'labels': element 3 differs");
}

TEST(ChaosReport, ALineComesBackAsItWas) {
  const ChaosLine line{.event = kStep,
                       .at = {kValidation, 2, 7},
                       .batches = {NameOfDigest(0xabc)},
                       .shards = {NameOfDigest(~uint64_t{0})},
                       .waited = 0.5,
                       .difference = "\"quoted\"",
                       .state = R"({"cp_size":4})"};
  EXPECT_EQ(line.batches.front(), "0000000000000abc");
  EXPECT_EQ(*ParseChaosLine(ToLine(line)), line);
  EXPECT_EQ(MomentOf(line), "step/validation/2/7");
}

TEST(ChaosReport, WhatIsNoReportIsRefusedWithItsText) {
  for (const char* text : {"", "hello", "[]", R"({"event":"step"})"}) {
    const absl::Status status = ParseChaosLine(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
}

TEST(ChaosSchedule, EachKindIsKilledOnceAndNoneNearAnEnd) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const std::vector<Kill> kills = DrawKills(seed, kMinChaosSteps, 4, 4);
    ASSERT_EQ(kills.size(), 3u);
    for (Victim victim : {Victim::kServer, Victim::kLoader, Victim::kRank}) {
      EXPECT_EQ(std::count_if(kills.begin(), kills.end(),
                              [&](const Kill& kill) { return kill.victim == victim; }),
                1)
          << seed;
    }
    EXPECT_TRUE(std::is_sorted(kills.begin(), kills.end(),
                               [](const Kill& a, const Kill& b) { return a.step < b.step; }));
    for (const Kill& kill : kills) {
      EXPECT_GE(kill.step, 2) << seed;
      EXPECT_LT(kill.step, kMinChaosSteps - 8) << seed;
      EXPECT_LT(kill.index, 4) << seed;
      EXPECT_LT(kill.gate, 4) << seed;
    }
  }
}

TEST(ChaosSchedule, TheRankThatWaitsIsNotTheOneThatIsKilled) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    for (const Kill& kill : DrawKills(seed, 40, 4, 4)) {
      if (kill.victim == Victim::kRank) EXPECT_NE(kill.index, kill.gate) << seed;
    }
  }
}

TEST(ChaosSchedule, ASeedMakesTheSamePlanAgainAndAnotherSeedAnother) {
  EXPECT_EQ(DrawKills(7, 40, 4, 4), DrawKills(7, 40, 4, 4));
  EXPECT_NE(DrawKills(7, 40, 4, 4), DrawKills(8, 40, 4, 4));
}

}  // namespace
}  // namespace cpshard::demo
