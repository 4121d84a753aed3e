// The end of a pass, and passes one after the other.
#include "tests/client/session/reader_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ReaderLedgerTest, TheEndComesBehindTheLastStep) {
  Make({Stream("train", 5)});
  Open();
  Requests();
  Refuse({"train", 0, 7}, EndAt(7));
  EXPECT_FALSE(ledger_->Ready("train"));
  ASSERT_TRUE(Deliver(5).ok());
  ASSERT_TRUE(Deliver(6).ok());
  EXPECT_THAT(HandedOut(), ElementsAre("train 0/5", "train 0/6", "end train 0/7"));
  EXPECT_EQ(Next(), "end train 0/7") << "as often as it is asked";
}

TEST_F(ReaderLedgerTest, TheEndCommitsTheLastStep) {
  Make({Stream("train", 5)});
  Open();
  Requests();
  ASSERT_TRUE(Deliver(5).ok());
  Refuse({"train", 0, 6}, EndAt(6));
  Refuse({"train", 0, 7}, EndAt(6));
  HandedOut();
  EXPECT_EQ(Listed().next_step, 6);
  EXPECT_THAT(Requests(), ElementsAre("commit train 0/5"));
}

TEST_F(ReaderLedgerTest, NothingIsAskedForBeyondTheEnd) {
  Make({Stream("train", 5)}, /*prefetch=*/3);
  Open();
  Requests();
  Refuse({"train", 0, 7}, EndAt(7));
  ledger_->Disconnected();
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/5", "want train 0/6"));
}

TEST_F(ReaderLedgerTest, AnEmptyPassEndsAtItsStart) {
  Make({Stream("validation")});
  Open();
  Requests();
  Refuse({"validation", 0, 0}, EndAt(0));
  EXPECT_THAT(HandedOut("validation"), ElementsAre("end validation 0/0"));
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(ReaderLedgerTest, TwoEndsAreAnError) {
  Make({Stream("train", 5)});
  Open();
  Requests();
  Refuse({"train", 0, 6}, EndAt(6));
  Refuse({"train", 0, 7}, EndAt(7));
  ASSERT_TRUE(Deliver(5).ok());
  EXPECT_EQ(Next(), "train 0/5");
  EXPECT_EQ(Next(), "end train 0/6") << "what all ranks may have seen stays";
  Make({Stream("train", 5)});
  Open();
  Requests();
  Refuse({"train", 0, 7}, EndAt(7));
  Refuse({"train", 0, 6}, EndAt(6));
  ASSERT_TRUE(Deliver(5).ok());
  EXPECT_EQ(Next(), "train 0/5");
  EXPECT_EQ(Next(), "FAILED_PRECONDITION");
}

TEST_F(ReaderLedgerTest, AnEndBeforeAStepThatCameIsAnError) {
  Make({Stream("train", 5)});
  Open();
  Requests();
  ASSERT_TRUE(Deliver(6).ok());
  Refuse({"train", 0, 7}, EndAt(6));
  const auto next = ledger_->Next("train");
  const auto& status = std::get<absl::Status>(next);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 6 was received"));
}

TEST_F(ReaderLedgerTest, AnEndBehindTheStepThatItAnswersForIsAnError) {
  Make({Stream("train", 5)});
  Open();
  Requests();
  Refuse({"train", 0, 5}, EndAt(6));
  EXPECT_EQ(Next(), "FAILED_PRECONDITION");
}

// --- the next pass

TEST_F(ReaderLedgerTest, ALeftPassIsSaidOnceAndTheNextOneWaits) {
  Make({Stream("validation")}, /*prefetch=*/0);
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"validation", 0, 0}).ok());
  Next("validation");
  ledger_->ClosePass("validation", /*finished=*/false);
  EXPECT_THAT(Requests(), ElementsAre("closed validation 0"));
  EXPECT_THAT(Requests(), IsEmpty());
  EXPECT_EQ(Next("validation"), "FAILED_PRECONDITION");
  ledger_->StartPass("validation");
  EXPECT_THAT(Requests(), ElementsAre("want validation 1/0"));
  ASSERT_TRUE(Deliver({"validation", 1, 0}).ok());
  EXPECT_EQ(Next("validation"), "validation 1/0");
}

TEST_F(ReaderLedgerTest, TheNextPassStartsAtStepZeroWithoutStates) {
  ReaderStream stream = Stream("validation", 4);
  stream.resume = ResumeState{2, {{0, {2, "after 2"}}, {1, {3, "after 3"}}}};
  Make({stream});
  Open();
  Requests();
  ledger_->ClosePass("validation", /*finished=*/false);
  ReaderStream next = Stream("validation");
  next.pass = 1;
  next.closed = true;
  next.resume = ResumeState{2, {}};
  EXPECT_EQ(Listed("validation"), next);
}

TEST_F(ReaderLedgerTest, CommitsBeginAnewInEveryPass) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(Deliver(step).ok());
  HandedOut();
  Requests();
  ledger_->ClosePass("train", /*finished=*/false);
  ledger_->StartPass("train");
  Requests();
  ASSERT_TRUE(Deliver({"train", 1, 0}).ok());
  Next();
  ledger_->Consumed("train");
  EXPECT_THAT(Requests(), ElementsAre("commit train 1/0", "want train 1/3"));
}

TEST_F(ReaderLedgerTest, LeavingAndOpeningInOneGoIsSaidInOrder) {
  Make({Stream("validation")}, /*prefetch=*/0);
  Open();
  Requests();
  ledger_->ClosePass("validation", /*finished=*/false);
  ledger_->StartPass("validation");
  EXPECT_THAT(Requests(), ElementsAre("closed validation 0", "want validation 1/0"));
  ledger_->ClosePass("validation", /*finished=*/false);
  ledger_->StartPass("validation");
  ledger_->ClosePass("validation", /*finished=*/true);
  EXPECT_THAT(Requests(), ElementsAre("closed validation 1", "closed validation 2 for good"));
}

TEST_F(ReaderLedgerTest, ShardsOfAPassThatWasLeftAreDropped) {
  Make({Stream("validation")});
  Open();
  Requests();
  ledger_->ClosePass("validation", /*finished=*/false);
  ledger_->StartPass("validation");
  Requests();
  EXPECT_TRUE(Deliver({"validation", 0, 0}).ok());
  Refuse({"validation", 0, 1}, EndAt(1));
  EXPECT_FALSE(ledger_->Ready("validation"));
  ASSERT_TRUE(Deliver({"validation", 1, 0}).ok());
  ASSERT_TRUE(Deliver({"validation", 1, 1}).ok());
  EXPECT_THAT(HandedOut("validation"), ElementsAre("validation 1/0", "validation 1/1"));
}

TEST_F(ReaderLedgerTest, TheEndOfAPassIsNotThatOfTheNext) {
  Make({Stream("validation")}, /*prefetch=*/0);
  Open();
  Requests();
  Refuse({"validation", 0, 0}, EndAt(0));
  ledger_->ClosePass("validation", /*finished=*/false);
  ledger_->StartPass("validation");
  EXPECT_THAT(Requests(), ElementsAre("closed validation 0", "want validation 1/0"));
  EXPECT_FALSE(ledger_->Ready("validation"));
}

TEST_F(ReaderLedgerTest, WhatOpenSaysOfPassesIsNotSaidAgain) {
  Make({Stream("validation")});
  Open();
  Requests();
  ledger_->Disconnected();
  ledger_->ClosePass("validation", /*finished=*/false);
  const OpenSession open = ledger_->OpenMessage();
  EXPECT_EQ(open.streams[0].pass, 1);
  EXPECT_TRUE(open.streams[0].closed);
  ASSERT_TRUE(ledger_->OnOpened(Opened()).ok());
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(ReaderLedgerTest, APassThatWasLeftWhileItOpenedIsSaidAfterwards) {
  Make({Stream("validation")});
  ledger_->OpenMessage();
  ledger_->ClosePass("validation", /*finished=*/true);
  ASSERT_TRUE(ledger_->OnOpened(Opened()).ok());
  EXPECT_THAT(Requests(), ElementsAre("closed validation 0 for good"));
}

TEST_F(ReaderLedgerTest, AFinishedDataStreamStaysFinished) {
  Make({Stream("train")});
  Open();
  Requests();
  ledger_->ClosePass("train", /*finished=*/true);
  Requests();
  ledger_->StartPass("train");
  ledger_->ClosePass("train", /*finished=*/true);
  EXPECT_THAT(Requests(), IsEmpty());
  EXPECT_TRUE(Listed().finished);
  EXPECT_TRUE(Listed().closed);
  EXPECT_EQ(Listed().pass, 1);
  EXPECT_EQ(Next(), "FAILED_PRECONDITION");
}

TEST_F(ReaderLedgerTest, BetweenTwoPassesTheDataStreamCanBeFinished) {
  Make({Stream("validation")});
  Open();
  Requests();
  ledger_->ClosePass("validation", /*finished=*/false);
  ledger_->ClosePass("validation", /*finished=*/false);
  EXPECT_THAT(Requests(), ElementsAre("closed validation 0"));
  ledger_->ClosePass("validation", /*finished=*/true);
  EXPECT_THAT(Requests(), ElementsAre("closed validation 1 for good"));
}

TEST_F(ReaderLedgerTest, ADataStreamThatIsClosedAtTheStartIsOpenedByStartPass) {
  ReaderStream validation = Stream("validation");
  validation.pass = 3;
  validation.closed = true;
  Make({validation}, /*prefetch=*/0);
  Open({"server-1", 7, {{"validation", 3, 5, {}}}});
  EXPECT_THAT(Requests(), IsEmpty());
  ledger_->StartPass("validation");
  EXPECT_THAT(Requests(), ElementsAre("want validation 3/0"));
}

}  // namespace
}  // namespace cpshard
