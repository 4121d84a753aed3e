// The demo says EQUAL only when every batch of every loader was reported exactly once and equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/demo/tally.h"

namespace cpshard::demo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 7 batches, 3 loaders: their shares are {0, 3, 6}, {1, 4}, {2, 5}.
class DemoTallyTest : public ::testing::Test {
 protected:
  void Report(int64_t batch, int64_t loader, std::string difference = "",
              std::string layout = "contiguous") {
    tally_.Add(loader, {.layout = std::move(layout),
                        .batch = batch,
                        .real_tokens = 100,
                        .columns = 128,
                        .bytes = 1000,
                        .tokens_of_rank = {60, 40},
                        .seconds = 0.5,
                        .difference = std::move(difference)});
  }
  void ReportAllBut(int64_t left_out) {
    for (int64_t batch = 0; batch < 7; ++batch) {
      if (batch != left_out) Report(batch, batch % 3);
    }
  }
  std::string Difference() { return tally_.Sum().difference; }

  Tally tally_{"contiguous", 7, 3};
};

TEST_F(DemoTallyTest, EveryBatchReportedOnceAndEqualIsEqual) {
  ReportAllBut(-1);
  EXPECT_THAT(Difference(), IsEmpty());
  EXPECT_EQ(tally_.reported(), 7);
}

TEST_F(DemoTallyTest, AddsUpTheBatches) {
  ReportAllBut(-1);
  const Figures figures = tally_.Sum();
  EXPECT_EQ(figures.batches, 7);
  EXPECT_EQ(figures.real_tokens, 700);
  EXPECT_EQ(figures.columns, 7 * 128);
  EXPECT_EQ(figures.bytes, 7000);
  EXPECT_EQ(figures.tokens_of_rank, (std::vector<int64_t>{420, 280}));
}

TEST_F(DemoTallyTest, CountsTheBatchesInWhichEveryStreamCameBack) {
  const auto report = [this](int64_t batch, std::vector<std::string> equal) {
    tally_.Add(batch % 3, {.layout = "contiguous", .batch = batch, .equal = std::move(equal)});
  };
  report(0, {"input_ids", "labels"});
  report(1, {"labels"});
  report(2, {"input_ids", "labels", "padding_mask"});
  EXPECT_EQ(tally_.Sum().streams,
            (std::vector<StreamFigure>{{"input_ids", 2}, {"labels", 3}, {"padding_mask", 1}}));
}

TEST_F(DemoTallyTest, ARateIsTheMedianOfTheLoadersEachByItsOwnClock) {
  const auto report = [](Tally& tally, int64_t batch, double seconds) {
    tally.Add(batch % 4, {.layout = "contiguous",
                          .batch = batch,
                          .real_tokens = 100,
                          .bytes = 1000,
                          .seconds = seconds});
  };
  Tally tally("contiguous", 7, 4);  // shares {0, 4}, {1, 5}, {2, 6}, {3}
  report(tally, 0, 0.5);
  report(tally, 4, 1.5);                                 // 2000 bytes in 2 s: 1000 a second
  EXPECT_DOUBLE_EQ(tally.Sum().bytes_per_second, 1000);  // others have not reported
  report(tally, 1, 0.125);
  report(tally, 5, 0.125);  // 8000
  report(tally, 2, 0.5);
  report(tally, 6, 0.5);  // 2000
  EXPECT_DOUBLE_EQ(tally.Sum().bytes_per_second, 2000);
  report(tally, 3, 0.25);                                // 4000
  EXPECT_DOUBLE_EQ(tally.Sum().bytes_per_second, 3000);  // between 2000 and 4000
  EXPECT_DOUBLE_EQ(tally.Sum().tokens_per_second, 300);
}

TEST_F(DemoTallyTest, ABatchThatNobodyReportedIsNamed) {
  ReportAllBut(5);
  EXPECT_THAT(Difference(), AllOf(HasSubstr("loader 2, batch 5"), HasSubstr("never reported")));
  EXPECT_EQ(tally_.reported(), 6);
}

TEST_F(DemoTallyTest, ABatchReportedTwiceIsNamedAndCountsOnce) {
  ReportAllBut(-1);
  Report(4, 1);
  EXPECT_THAT(Difference(), AllOf(HasSubstr("loader 1, batch 4"), HasSubstr("2 times")));
  EXPECT_EQ(tally_.Sum().batches, 7);
  EXPECT_EQ(tally_.Sum().bytes, 7000);
}

TEST_F(DemoTallyTest, ADifferenceIsNamedWithItsLoaderAndBatch) {
  ReportAllBut(3);
  Report(3, 0, "rank 1: stream 'labels' [2, 8]: element 3 differs");
  EXPECT_EQ(Difference(), "loader 0, batch 3: rank 1: stream 'labels' [2, 8]: element 3 differs");
}

TEST_F(DemoTallyTest, TheFirstDifferenceInTheOrderOfBatchesIsNamed) {
  Report(6, 0, "late");
  Report(2, 2, "early");
  for (int64_t batch : {0, 1, 3, 4, 5}) Report(batch, batch % 3);
  EXPECT_EQ(Difference(), "loader 2, batch 2: early");
}

TEST_F(DemoTallyTest, AReportOfAnothersBatchIsADifference) {
  ReportAllBut(4);
  Report(4, 2);
  EXPECT_THAT(Difference(), HasSubstr("loader 2, batch 4"));
  Report(4, 1);
  EXPECT_THAT(Difference(), HasSubstr("loader 2, batch 4"));
}

TEST_F(DemoTallyTest, AReportOfAnotherLayoutOrOfNoBatchIsADifference) {
  ReportAllBut(-1);
  Report(0, 0, "", "round_robin");
  EXPECT_THAT(Difference(), HasSubstr("round_robin"));

  Tally other("contiguous", 2, 1);
  other.Add(0, {.layout = "contiguous", .batch = 2, .seconds = 1});
  EXPECT_THAT(other.Sum().difference, HasSubstr("batch 2"));
}

TEST_F(DemoTallyTest, KnowsWhereALoaderIsToBeginAgain) {
  EXPECT_EQ(tally_.ShareOf(0), 3);
  EXPECT_EQ(tally_.ShareOf(1), 2);
  EXPECT_EQ(tally_.ShareOf(2), 2);
  EXPECT_EQ(tally_.ReportedBy(0), 0);
  Report(0, 0);
  Report(3, 0);
  EXPECT_EQ(tally_.ReportedBy(0), 2);
  Report(5, 2);  // 2 is missing
  EXPECT_EQ(tally_.ReportedBy(2), 0);
  Report(2, 2);
  EXPECT_EQ(tally_.ReportedBy(2), 2);
}

TEST_F(DemoTallyTest, ALoaderWithoutBatchesHasNothingToReport) {
  const Tally tally("contiguous", 2, 4);
  EXPECT_EQ(tally.ShareOf(1), 1);
  EXPECT_EQ(tally.ShareOf(2), 0);
  EXPECT_EQ(tally.ShareOf(3), 0);
  EXPECT_EQ(tally.ReportedBy(3), 0);
}

}  // namespace
}  // namespace cpshard::demo
