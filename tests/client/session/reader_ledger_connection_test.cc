// A reader's ledger over disconnects, restarts of the server and of the process.
#include "tests/client/session/reader_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ReaderLedgerTest, OpenSaysWhatTheCheckpointSaid) {
  ReaderStream stream = Stream("train", 10);
  stream.pass = 1;
  stream.received = 12;  // by the process before: this one has nothing of it
  stream.resume = ResumeState{2, {{0, {8, "after 8"}}, {1, {9, "after 9"}}}};
  Make({stream});
  const OpenSession open = ledger_->OpenMessage();
  EXPECT_EQ(open.group, "g");
  EXPECT_EQ(open.generation, 7);
  EXPECT_EQ(open.incarnation, 3);
  stream.received = 9;
  EXPECT_THAT(open.streams, ElementsAre(stream));
}

TEST_F(ReaderLedgerTest, WhatIsHereIsNotAskedForAgainAfterAReconnect) {
  Make({Stream("train")}, /*prefetch=*/3);
  Open();
  Requests();
  for (const int64_t step : {1, 0, 2}) ASSERT_TRUE(Deliver(step).ok());
  ledger_->Disconnected();
  EXPECT_THAT(Requests(), IsEmpty());
  EXPECT_EQ(Listed().received, 2);
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/3"));
  ASSERT_TRUE(Deliver(3).ok());
  EXPECT_THAT(HandedOut(), ElementsAre("train 0/0", "train 0/1", "train 0/2", "train 0/3"));
}

// Else its commit would be ahead of all that a new server knows to be received.
TEST_F(ReaderLedgerTest, AStepBehindAHoleIsAskedForAgainAfterAReconnect) {
  Make({Stream("train")}, /*prefetch=*/3);
  Open();
  Requests();
  for (const int64_t step : {0, 1, 3}) ASSERT_TRUE(Deliver(step).ok());
  ledger_->Disconnected();
  EXPECT_EQ(Listed().received, 1);
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/2", "want train 0/3"));
}

TEST_F(ReaderLedgerTest, AStepInHandIsOfferedToTheServerButNotToTheTrainer) {
  Make({Stream("train")}, /*prefetch=*/1);
  Open();
  Requests();
  ASSERT_TRUE(Deliver(0).ok());
  EXPECT_EQ(Next(), "train 0/0");
  ledger_->Disconnected();
  EXPECT_EQ(Listed().next_step, 0);
  EXPECT_EQ(Listed().received, 0);
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/1", "want train 0/2"));
  ASSERT_TRUE(Deliver(1).ok());
  EXPECT_THAT(HandedOut(), ElementsAre("train 0/1"));
}

TEST_F(ReaderLedgerTest, MicrobatchesThatCameBeforeAReconnectCountOnce) {
  Make({Stream("train")});
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 3).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 3).ok());
  ledger_->Disconnected();
  Open();
  Requests();
  for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
    EXPECT_FALSE(ledger_->Ready("train"));
    ASSERT_TRUE(Deliver({"train", 0, 0}, microbatch, 3).ok());
  }
  const auto next = ledger_->Next("train");
  EXPECT_EQ(std::get<ReceivedStep>(next).microbatches.size(), 3u);
}

TEST_F(ReaderLedgerTest, AStepThatChangedMeanwhileIsNotMixedOfTwo) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
    ASSERT_TRUE(Deliver({"train", 0, 0}, microbatch, 4).ok());
  }
  ledger_->Disconnected();
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 2).ok());
  ReceivedShard other = Shard({"train", 0, 0}, 1, 2);
  other.head.digest = 4711;
  ASSERT_TRUE(ledger_->OnDelivery(std::move(other)).ok());
  const auto next = ledger_->Next("train");
  const auto& step = std::get<ReceivedStep>(next);
  ASSERT_EQ(step.microbatches.size(), 2u);
  EXPECT_EQ(step.microbatches[0].head.digest, 0u);
  EXPECT_EQ(step.microbatches[1].head.digest, 4711u);
}

TEST_F(ReaderLedgerTest, WhatFollowsAChangedMicrobatchIsTakenAnew) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t microbatch = 0; microbatch < 2; ++microbatch) {
    ASSERT_TRUE(Deliver({"train", 0, 0}, microbatch, 3).ok());
  }
  ledger_->Disconnected();
  Open();
  Requests();
  ReceivedShard changed = Shard({"train", 0, 0}, 0, 3);
  changed.head.digest = 4711;
  ASSERT_TRUE(ledger_->OnDelivery(std::move(changed)).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 3).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 2, 3).ok());
  const auto next = ledger_->Next("train");
  const auto& step = std::get<ReceivedStep>(next);
  ASSERT_EQ(step.microbatches.size(), 3u);
  EXPECT_EQ(step.microbatches[0].head.digest, 4711u);
}

TEST_F(ReaderLedgerTest, AStepThatHasFewerMicrobatchesNowIsThatShort) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
    ASSERT_TRUE(Deliver({"train", 0, 0}, microbatch, 4).ok());
  }
  ledger_->Disconnected();
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 2).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 2).ok());
  const auto next = ledger_->Next("train");
  EXPECT_EQ(std::get<ReceivedStep>(next).microbatches.size(), 2u);
}

TEST_F(ReaderLedgerTest, AnswersOfAConnectionThatIsGoneAreDropped) {
  Make({Stream("train")});
  Open();
  Requests();
  const ReceivedShard late = Shard({"train", 0, 0});
  ledger_->Disconnected();
  EXPECT_TRUE(ledger_->OnDelivery(late).ok());
  ledger_->OnRequestStatus(late.head.id, absl::InternalError("late"));
  EXPECT_FALSE(ledger_->Ready("train"));
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0", "want train 0/1", "want train 0/2"));
}

TEST_F(ReaderLedgerTest, WhatWasConsumedWithoutAConnectionIsSaidByOpen) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(Deliver(step).ok());
  ledger_->Disconnected();
  Next();
  Next();
  EXPECT_EQ(ledger_->OpenMessage().streams[0].next_step, 1);
  ASSERT_TRUE(ledger_->OnOpened(Opened()).ok());
  EXPECT_THAT(Requests(), ElementsAre("want train 0/3", "want train 0/4"));
}

TEST_F(ReaderLedgerTest, WhatWasConsumedWhileItOpenedIsCommittedAfterwards) {
  Make({Stream("train")});
  Open();
  Requests();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(Deliver(step).ok());
  ledger_->Disconnected();
  ledger_->OpenMessage();
  Next();
  Next();
  ASSERT_TRUE(ledger_->OnOpened(Opened()).ok());
  EXPECT_THAT(Requests(), ElementsAre("commit train 0/0", "want train 0/3", "want train 0/4"));
}

TEST_F(ReaderLedgerTest, AnOpenThatWasLostIsSaidAnew) {
  Make({Stream("train")});
  Open();
  Requests();
  ASSERT_TRUE(Deliver(0).ok());
  ASSERT_TRUE(Deliver(1).ok());
  ledger_->Disconnected();
  ledger_->OpenMessage();  // has no answer
  ledger_->Disconnected();
  Next();
  ledger_->Consumed("train");
  const OpenSession open = ledger_->OpenMessage();
  EXPECT_EQ(open.streams[0].next_step, 1);
  EXPECT_EQ(open.streams[0].received, 1);
  EXPECT_EQ(open.streams[0].resume, (ResumeState{2, {{0, {0, "after 0"}}}}));
}

TEST_F(ReaderLedgerTest, AServerThatLostEverythingLearnsAllOfIt) {
  Make({Stream("train")}, /*prefetch=*/1);
  Open();
  Requests();
  for (int64_t step = 0; step < 6; ++step) {
    ASSERT_TRUE(Deliver(step).ok());
    EXPECT_EQ(Next(), absl::StrCat("train 0/", step));
    Requests();
  }
  ledger_->Disconnected();
  const OpenSession open = ledger_->OpenMessage();
  ASSERT_EQ(open.streams.size(), 1u);
  EXPECT_EQ(open.streams[0].next_step, 5);
  EXPECT_EQ(open.streams[0].received, 5);
  EXPECT_EQ(open.streams[0].resume, (ResumeState{2, {{0, {4, "after 4"}}, {1, {3, "after 3"}}}}));
  ASSERT_TRUE(ledger_->OnOpened({"server-2", 7, {{"train", 0, std::nullopt, std::nullopt}}}).ok());
  EXPECT_THAT(Requests(), ElementsAre("want train 0/6", "want train 0/7"));
}

// --- what the server says

TEST_F(ReaderLedgerTest, AMissingResumeStateIsTakenFromTheServer) {
  const ResumeState resume{2, {{0, {8, "after 8"}}, {1, {9, "after 9"}}}};
  Make({Stream("train", 10)});
  Open({"server-1", 7, {{"train", 0, 9, resume}}});
  EXPECT_EQ(Listed().resume, resume);
}

TEST_F(ReaderLedgerTest, AResumeStateOfAnEarlierStepIsNotTaken) {
  Make({Stream("train", 10)});
  Open();
  Requests();
  ASSERT_TRUE(Deliver(10).ok());
  ledger_->Disconnected();
  ledger_->OpenMessage();  // next_step 10
  Next();
  ledger_->Consumed("train");
  const ResumeState of_9{2, {{0, {8, "after 8"}}, {1, {9, "after 9"}}}};
  ASSERT_TRUE(ledger_->OnOpened({"server-1", 7, {{"train", 0, 9, of_9}}}).ok());
  EXPECT_EQ(Listed().next_step, 11);
  EXPECT_EQ(Listed().resume, std::nullopt);
}

TEST_F(ReaderLedgerTest, OurOwnResumeStateIsKept) {
  ReaderStream stream = Stream("train", 2);
  stream.resume = ResumeState{2, {{0, {0, "mine"}}, {1, {1, "mine"}}}};
  Make({stream});
  Open({"server-1", 7, {{"train", 0, 1, ResumeState{2, {{0, {0, "theirs"}}}}}}});
  EXPECT_EQ(Listed().resume, stream.resume);
}

TEST_F(ReaderLedgerTest, AServerThatHasReleasedWhatTheReaderNeedsIsRefused) {
  Make({Stream("train", 10)});
  ledger_->OpenMessage();
  const absl::Status status = ledger_->OnOpened({"server-1", 7, {{"train", 0, 11, {}}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing below step 11"));
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(ReaderLedgerTest, AServerInALaterPassIsRefused) {
  Make({Stream("train", 10)});
  ledger_->OpenMessage();
  EXPECT_EQ(ledger_->OnOpened({"server-1", 7, {{"train", 1, 0, {}}}}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReaderLedgerTest, AServerInAnEarlierPassStillWaitsForOthers) {
  ReaderStream stream = Stream("train", 2);
  stream.pass = 1;
  Make({stream});
  Open({"server-1", 7, {{"train", 0, 30, {}}}});
  EXPECT_THAT(Requests(), ElementsAre("want train 1/2", "want train 1/3", "want train 1/4"));
}

TEST_F(ReaderLedgerTest, AnotherGenerationIsNeverAdopted) {
  Make({Stream("train")});
  ledger_->OpenMessage();
  EXPECT_EQ(ledger_->OnOpened({"server-1", 8, {}}).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cpshard
