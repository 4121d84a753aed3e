// Where a server says a loader is to go on: after reconnects, restarts, seeks, other generations.
#include "tests/client/session/loader_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Steps 0, 2, 4 have landed, 6 is made ahead, the source stands before 8.
class MadeThreeSteps : public LoaderLedgerTest {
 protected:
  MadeThreeSteps() {
    Make();
    ledger_->OnPosition(At(0));
    for (const int64_t step : {0, 2, 4}) Credit(step);
    MakeAll();
    Messages();
    for (const int64_t step : {0, 2, 4}) Ack(step);
  }
};

TEST_F(MadeThreeSteps, WithoutAConnectionNothingIsPushedOrHeard) {
  ledger_->Disconnected();
  ledger_->OnPosition(At(4));
  Credit(6);
  Release(10);
  EXPECT_THAT(Messages(), IsEmpty());
  EXPECT_EQ(ledger_->held_bytes(), 40);
}

TEST_F(MadeThreeSteps, CreditsDoNotOutliveTheConnection) {
  Credit(6);
  Reconnect();
  EXPECT_THAT(Messages(), IsEmpty());
  ledger_->OnPosition(At(6));
  EXPECT_THAT(Messages(), IsEmpty());
  Credit(6);
  EXPECT_THAT(Messages(), ElementsAre("train 0/6.0"));
}

TEST_F(MadeThreeSteps, WhatWasUnderWayIsPushedAgain) {
  Credit(6);
  EXPECT_THAT(Messages(), ElementsAre("train 0/6.0"));
  Reconnect();
  ledger_->OnPosition(At(6));
  Credit(6);
  EXPECT_THAT(Messages(), ElementsAre("train 0/6.0"));
}

TEST_F(MadeThreeSteps, AServerThatLostItsWindowGetsItAgainWithoutARewind) {
  Release(2);
  Reconnect();
  EXPECT_EQ(Listed().released, 2);
  EXPECT_EQ(Listed().held_from, 2);
  EXPECT_EQ(ledger_->HelloMessage().generation_seen, 7);
  ledger_->OnPosition(At(2));  // in an epoch 1 of its own
  EXPECT_EQ(Work(), "nothing");
  for (const int64_t step : {2, 4, 6}) Credit(step);
  EXPECT_THAT(Messages(), ElementsAre("train 0/2.0", "train 0/4.0", "train 0/6.0"));
  EXPECT_EQ(Work(), "train 0/8");
}

TEST_F(MadeThreeSteps, AServerThatRestartsAgainAndAgainGetsTheSame) {
  for (int i = 0; i < 3; ++i) {
    Reconnect();
    ledger_->OnPosition(At(2));
    for (const int64_t step : {2, 4}) Credit(step);
    EXPECT_THAT(Messages(), ElementsAre("train 0/2.0", "train 0/4.0"));
    Ack(2);
  }
  EXPECT_EQ(Work(), "nothing");
}

TEST_F(MadeThreeSteps, WhatTheServerHasIsNotPushedWithoutACredit) {
  Reconnect();
  ledger_->OnPosition(At(2));
  Credit(2);
  Credit(6);  // 4 is there already
  EXPECT_THAT(Messages(), ElementsAre("train 0/2.0", "train 0/6.0"));
  EXPECT_EQ(Work(), "train 0/8");
}

TEST_F(LoaderLedgerTest, MicrobatchesThatHaveLandedAreNotPushedAgain) {
  Make();
  ledger_->OnPosition(At(0));
  MakeOne(/*microbatches=*/4);
  Reconnect();
  Position position = At(0);
  position.landed = {0, 2, 9};
  ledger_->OnPosition(position);
  Credit(0);
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.1", "train 0/0.3"));
}

TEST_F(LoaderLedgerTest, MicrobatchesThatWereAcknowledgedAndLostArePushedAgain) {
  Make();
  ledger_->OnPosition(At(0));
  MakeOne(/*microbatches=*/3);
  Credit(0);
  Messages();
  Ack(0, 0);
  Ack(0, 1);
  Reconnect();
  Position position = At(0);
  position.landed = {1};
  ledger_->OnPosition(position);
  Credit(0);
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.0", "train 0/0.2"));
}

TEST_F(LoaderLedgerTest, APositionInTheSameEpochLeavesAloneWhatIsUnderWay) {
  Make();
  ledger_->OnPosition(At(0));
  MakeAll();
  Credit(0);
  Messages();
  ledger_->OnPosition(At(0));
  Credit(0);
  EXPECT_THAT(Messages(), IsEmpty());
  Position sought = At(0);
  sought.epoch = 2;
  ledger_->OnPosition(sought);
  Credit(0, /*epoch=*/2);
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
}

// --- seeks

TEST_F(MadeThreeSteps, APositionWithinWhatIsHeldNeverRewinds) {
  for (const int64_t from : {0, 2, 4, 6, 8}) {
    for (const int64_t epoch : {1, 2}) {
      SCOPED_TRACE(absl::StrCat("from ", from, " epoch ", epoch));
      Position position = WithState(At(from), from - 2);
      position.epoch = epoch;
      Reconnect();
      ledger_->OnPosition(position);
      EXPECT_EQ(Work(), from == 8 ? "train 0/8" : "nothing");
      EXPECT_EQ(ledger_->held_bytes(), 40);
    }
  }
}

TEST_F(MadeThreeSteps, APositionBelowWhatIsHeldRewindsWithItsState) {
  Release(4);
  Position back = WithState(At(2), 0);
  back.generation = 8;
  back.epoch = 2;
  ledger_->OnPosition(back);
  EXPECT_EQ(Work(), "train 0/2 rewound to after 0");
  EXPECT_EQ(ledger_->held_bytes(), 0);
  EXPECT_EQ(Listed().held_from, 2);
  MakeOne();
  Credit(2, /*epoch=*/2);
  EXPECT_THAT(Messages(), ElementsAre("train 0/2.0"));
  EXPECT_EQ(Work(), "train 0/4");
}

TEST_F(MadeThreeSteps, APositionBehindAGapRewindsForwards) {
  Position forwards = WithState(At(20), 18);
  forwards.epoch = 2;
  ledger_->OnPosition(forwards);
  EXPECT_EQ(Work(), "train 0/20 rewound to after 18");
  EXPECT_EQ(ledger_->held_bytes(), 0);
}

TEST_F(MadeThreeSteps, ANewerPositionBringsItsOwnState) {
  Position back = At(20);
  back.epoch = 2;
  ledger_->OnPosition(back);
  EXPECT_EQ(Work(), "train 0/20 rewound to the start");
  back = WithState(back, 18);
  ledger_->OnPosition(back);
  EXPECT_EQ(Work(), "train 0/20 rewound to after 18");
}

TEST_F(MadeThreeSteps, APositionBetweenOwnStepsMeansTheNextOwnOne) {
  Position odd = At(5);
  odd.epoch = 2;
  ledger_->OnPosition(odd);
  for (const int64_t step : {4, 6}) Credit(step, /*epoch=*/2);
  EXPECT_EQ(Work(), "train 0/8");
}

TEST_F(MadeThreeSteps, ASeekMakesOldCreditsVoid) {
  Credit(6);
  Position sought = At(2);
  sought.epoch = 2;
  ledger_->OnPosition(sought);
  EXPECT_THAT(Messages(), IsEmpty());
  Ack(2);
  Release(8);
  Credit(2);
  EXPECT_THAT(Messages(), IsEmpty());
  EXPECT_EQ(ledger_->held_bytes(), 40);
}

// --- generations

TEST_F(MadeThreeSteps, TheHighestGenerationIsEchoedWithItsOwnReleases) {
  Release(4);
  Position next = At(4);
  next.generation = 9;
  next.released = 3;
  ledger_->OnPosition(next);
  EXPECT_EQ(ledger_->HelloMessage().generation_seen, 9);
  EXPECT_EQ(Listed().released, 3);
  EXPECT_EQ(Listed().held_from, 4);
}

TEST_F(MadeThreeSteps, APositionOfAnOlderGenerationIsIgnored) {
  Position old = WithState(At(20), 18);
  old.generation = 6;
  ledger_->OnPosition(old);
  EXPECT_EQ(ledger_->held_bytes(), 40);
  EXPECT_EQ(ledger_->HelloMessage().generation_seen, 7);
}

TEST_F(MadeThreeSteps, APositionReleasesToo) {
  Reconnect();
  Position position = At(6);
  position.released = 5;
  ledger_->OnPosition(position);
  EXPECT_EQ(Listed().released, 5);
  EXPECT_EQ(ledger_->held_bytes(), 10);
}

TEST_F(MadeThreeSteps, WithinAGenerationReleasesAreNotForgotten) {
  Release(4);
  Reconnect();
  ledger_->OnPosition(At(4));
  EXPECT_EQ(Listed().released, 4);
}

TEST_F(LoaderLedgerTest, AGenerationThatOneDataStreamLearnsOfVoidsReleasesOfAll) {
  Make(0, {"a", "b"});
  for (const char* stream : {"a", "b"}) {
    Position position = At(4, stream);
    position.released = 3;
    ledger_->OnPosition(position);
  }
  EXPECT_EQ(Listed("b").released, 3);
  Position next = At(0, "a");
  next.generation = 8;
  ledger_->OnPosition(next);
  EXPECT_EQ(ledger_->HelloMessage().generation_seen, 8);
  EXPECT_EQ(Listed("b").released, 0) << "generation 8 has released nothing of it";
}

// --- the end

TEST_F(MadeThreeSteps, TheEndIsDeclaredAfterEveryPosition) {
  Credit(6);
  FindEnd(7);
  EXPECT_THAT(Messages(), ElementsAre("end train 0/7", "train 0/6.0"));
  Position sought = At(8);
  sought.epoch = 2;
  ledger_->OnPosition(sought);
  const std::vector<LoaderLedger::Message> messages = TakeMessages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(std::get<EndOfStream>(messages[0]).epoch, 2);
  EXPECT_EQ(std::get<EndOfStream>(messages[0]).end_step, 7);
  Reconnect();
  EXPECT_THAT(Messages(), IsEmpty());
  ledger_->OnPosition(At(8));
  EXPECT_THAT(Messages(), ElementsAre("end train 0/7"));
  EXPECT_EQ(Work(), "nothing");
}

TEST_F(MadeThreeSteps, AKnownEndIsDeclaredBeforeTheSourceIsThereAgain) {
  Credit(6);
  FindEnd(7);
  Release(6);
  Position back = WithState(At(2), 0);
  back.generation = 8;
  back.epoch = 2;
  ledger_->OnPosition(back);
  EXPECT_THAT(Messages(), ElementsAre("end train 0/7"));
  for (const int64_t step : {2, 4, 6, 8}) Credit(step, /*epoch=*/2);
  EXPECT_THAT(MakeAll(), ElementsAre("train 0/2 rewound to after 0", "train 0/4", "train 0/6"));
}

TEST_F(MadeThreeSteps, AnEndFoundWhileThePositionMovedStillCounts) {
  Credit(6);
  const auto work = ledger_->NextWork();
  Position back = WithState(At(20), 18);
  back.epoch = 2;
  ledger_->OnPosition(back);
  ledger_->MadeEnd(*work, 7);
  EXPECT_THAT(Messages(), ElementsAre("end train 0/7"));
}

}  // namespace
}  // namespace cpshard
