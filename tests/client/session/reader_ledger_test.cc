#include "tests/client/session/reader_ledger.h"

#include <algorithm>
#include <random>

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ReaderLedgerTest, NothingIsAskedForBeforeTheSessionIsOpen) {
  Make({Stream("train")});
  EXPECT_THAT(Requests(), IsEmpty());
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0", "want train 0/1", "want train 0/2"));
}

TEST_F(ReaderLedgerTest, AStepIsAskedForOnce) {
  Make({Stream("train")});
  Open();
  Requests();
  EXPECT_THAT(Requests(), IsEmpty());
  ASSERT_TRUE(Deliver(0).ok());
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(ReaderLedgerTest, AskingGoesOnWithWhatIsHandedOut) {
  Make({Stream("train", 10)}, /*prefetch=*/1);
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/10", "want train 0/11"));
  ASSERT_TRUE(Deliver(10).ok());
  EXPECT_EQ(Next(), "train 0/10");
  EXPECT_THAT(Requests(), ElementsAre("want train 0/12"));
}

TEST_F(ReaderLedgerTest, WithoutPrefetchOneStepIsAskedForAtATime) {
  Make({Stream("train")}, /*prefetch=*/0);
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0"));
  ASSERT_TRUE(Deliver(0).ok());
  EXPECT_EQ(Next(), "train 0/0");
  EXPECT_THAT(Requests(), ElementsAre("want train 0/1"));
}

TEST_F(ReaderLedgerTest, StepsLeaveInOrderHoweverTheyCome) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Make({Stream("train")}, /*prefetch=*/5);
    Open();
    Requests();
    std::vector<int64_t> steps = {0, 1, 2, 3, 4, 5};
    std::shuffle(steps.begin(), steps.end(), random);
    std::vector<std::string> handed_out;
    for (const int64_t step : steps) {
      ASSERT_TRUE(Deliver(step).ok());
      for (const std::string& text : HandedOut()) handed_out.push_back(text);
    }
    EXPECT_THAT(handed_out, ElementsAre("train 0/0", "train 0/1", "train 0/2", "train 0/3",
                                        "train 0/4", "train 0/5"));
  }
}

TEST_F(ReaderLedgerTest, AStepIsReadyWithItsLastMicrobatch) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
    EXPECT_FALSE(ledger_->Ready("train"));
    EXPECT_EQ(Next(), "UNAVAILABLE");
    ASSERT_TRUE(Deliver({"train", 0, 0}, microbatch, 3).ok());
  }
  ASSERT_TRUE(ledger_->Ready("train"));
  const auto next = ledger_->Next("train");
  const auto& step = std::get<ReceivedStep>(next);
  ASSERT_EQ(step.microbatches.size(), 3u);
  for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
    EXPECT_EQ(step.microbatches[microbatch].head.microbatch, microbatch);
  }
  EXPECT_EQ(step.totals.num_microbatches, 3);
}

TEST_F(ReaderLedgerTest, ARepeatedDeliveryIsDropped) {
  Make({Stream("train")});
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 2).ok());
  EXPECT_TRUE(Deliver({"train", 0, 0}, 0, 2).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 2).ok());
  EXPECT_TRUE(Deliver({"train", 0, 0}, 1, 2).ok());
  const auto next = ledger_->Next("train");
  EXPECT_EQ(std::get<ReceivedStep>(next).microbatches.size(), 2u);
  EXPECT_TRUE(Deliver({"train", 0, 0}, 1, 2).ok());
  EXPECT_FALSE(ledger_->Ready("train"));
}

// --- consuming

TEST_F(ReaderLedgerTest, TheNextStepCommitsTheOneBefore) {
  Make({Stream("train")}, /*prefetch=*/1);
  Open();
  Requests();
  ASSERT_TRUE(Deliver(0).ok());
  ASSERT_TRUE(Deliver(1).ok());
  Next();
  EXPECT_EQ(Listed().next_step, 0);
  EXPECT_THAT(Requests(), ElementsAre("want train 0/2"));
  Next();
  EXPECT_EQ(Listed().next_step, 1);
  EXPECT_THAT(Requests(), ElementsAre("commit train 0/0", "want train 0/3"));
}

TEST_F(ReaderLedgerTest, ConsumedCommitsWithoutAskingForTheNext) {
  Make({Stream("train")}, /*prefetch=*/0);
  Open();
  Requests();
  ASSERT_TRUE(Deliver(0).ok());
  Next();
  Requests();
  ledger_->Consumed("train");
  EXPECT_THAT(Requests(), ElementsAre("commit train 0/0"));
  ledger_->Consumed("train");
  EXPECT_THAT(Requests(), IsEmpty());
  ASSERT_TRUE(Deliver(1).ok());
  EXPECT_EQ(Next(), "train 0/1");
  EXPECT_THAT(Requests(), ElementsAre("want train 0/2")) << "step 1 is not consumed yet";
}

TEST_F(ReaderLedgerTest, WhatIsOnlyReceivedIsNotCommitted) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(Deliver(step).ok());
  ledger_->Consumed("train");
  EXPECT_THAT(Requests(), IsEmpty());
  EXPECT_EQ(Listed().next_step, 0);
  EXPECT_EQ(Listed().received, 2);
}

TEST_F(ReaderLedgerTest, SeveralConsumedStepsAreOneCommit) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(Deliver(step).ok());
  HandedOut();
  ledger_->Consumed("train");
  EXPECT_THAT(Requests(), ElementsAre("commit train 0/2", "want train 0/3", "want train 0/4",
                                      "want train 0/5"));
}

// --- the checkpoint

TEST_F(ReaderLedgerTest, TheResumeStateIsThatOfTheLastConsumedStep) {
  Make({Stream("train")});
  Open();
  Requests();
  EXPECT_EQ(Listed().resume, ResumeState{}) << "a fresh start needs none";
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(Deliver(step).ok());
  EXPECT_EQ(Listed().resume, ResumeState{});
  Next();
  EXPECT_EQ(Listed().resume, ResumeState{}) << "step 0 is in hand, not consumed";
  Next();
  EXPECT_EQ(Listed().resume, (ResumeState{2, {{0, {0, "after 0"}}}}));
  Next();
  EXPECT_EQ(Listed().resume, (ResumeState{2, {{0, {0, "after 0"}}, {1, {1, "after 1"}}}}));
  ledger_->Consumed("train");
  EXPECT_EQ(Listed().resume, (ResumeState{2, {{0, {2, "after 2"}}, {1, {1, "after 1"}}}}));
  EXPECT_EQ(Listed().next_step, 3);
}

TEST_F(ReaderLedgerTest, ALoaderThatGivesNoStateKeepsItsOlderOne) {
  ReaderStream stream = Stream("train", 4);
  stream.resume = ResumeState{2, {{0, {2, "after 2"}}, {1, {3, "after 3"}}}};
  Make({stream});
  Open();
  Requests();
  ReceivedShard shard = Shard({"train", 0, 4});
  shard.head.owner_state.reset();
  ASSERT_TRUE(ledger_->OnDelivery(std::move(shard)).ok());
  Next();
  ledger_->Consumed("train");
  EXPECT_EQ(Listed().next_step, 5);
  EXPECT_EQ(Listed().resume, (ResumeState{2, {{0, {2, "after 2"}}, {1, {3, "after 3"}}}}));
}

TEST_F(ReaderLedgerTest, AnUnknownResumeStateIsKnownOnceAllLoadersHaveGivenOne) {
  Make({Stream("train", 10)});
  Open();
  Requests();
  EXPECT_EQ(Listed().resume, std::nullopt);
  ASSERT_TRUE(Deliver(10).ok());
  ASSERT_TRUE(Deliver(11).ok());
  Next();
  Next();
  EXPECT_EQ(Listed().next_step, 11);
  EXPECT_EQ(Listed().resume, std::nullopt) << "loader 1's is of a step before";
  ledger_->Consumed("train");
  EXPECT_EQ(Listed().resume, (ResumeState{2, {{0, {10, "after 10"}}, {1, {11, "after 11"}}}}));
}

// --- several data streams

TEST_F(ReaderLedgerTest, DataStreamsGoOnByThemselves) {
  Make({Stream("train", 5), Stream("validation")}, /*prefetch=*/0);
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/5", "want validation 0/0"));
  ASSERT_TRUE(Deliver({"validation", 0, 0}).ok());
  EXPECT_FALSE(ledger_->Ready("train"));
  EXPECT_EQ(Next("validation"), "validation 0/0");
  EXPECT_THAT(Requests(), ElementsAre("want validation 0/1"));
}

TEST_F(ReaderLedgerTest, AnUnknownDataStreamIsNotFound) {
  Make({Stream("train")});
  ASSERT_TRUE(ledger_->Ready("test"));
  EXPECT_EQ(Next("test"), "NOT_FOUND");
}

// --- how much is asked for

TEST_F(ReaderLedgerTest, NoMoreIsAskedForThanAServerLetsWait) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/100);
  Open();
  std::vector<std::string> asked = Requests();
  EXPECT_LE(asked.size(), static_cast<size_t>(kMaxWants));
  EXPECT_THAT(asked, testing::IsSupersetOf({"want train 0/0", "want validation 0/0",
                                            "want train 0/30", "want validation 0/30"}));
  ASSERT_TRUE(Deliver(0).ok());
  EXPECT_THAT(Requests(), testing::SizeIs(1));
}

TEST_F(ReaderLedgerTest, WhatIsPrefetchedLeavesRoomToAskForTheNextStepOfOtherDataStreams) {
  ReaderStream closed = Stream("validation");
  closed.closed = true;
  Make({Stream("train"), closed}, /*prefetch=*/1000);
  Open();
  EXPECT_LT(Requests().size(), static_cast<size_t>(kMaxWants));
  ledger_->StartPass("validation");
  EXPECT_THAT(Requests(), testing::ElementsAre("want validation 0/0"));
}

TEST_F(ReaderLedgerTest, WhatTheTrainerNeedsFirstIsAskedForFirst) {
  Make({Stream("a"), Stream("b")}, /*prefetch=*/1);
  Open();
  EXPECT_THAT(Requests(),
              testing::ElementsAre("want a 0/0", "want b 0/0", "want a 0/1", "want b 0/1"));
}

}  // namespace
}  // namespace cpshard
