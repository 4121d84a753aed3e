// Answers to a reader that are no shards, and shards that should not have come.
#include "tests/client/session/reader_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ReaderLedgerTest, AStepWhoseDeadlinePassedIsAskedForAtOnce) {
  Make({Stream("train")});
  Open();
  Requests();
  Refuse({"train", 0, 1}, absl::DeadlineExceededError("waiting for train/1 from loader 1"));
  EXPECT_FALSE(ledger_->postponed());
  EXPECT_THAT(Requests(), ElementsAre("want train 0/1"));
}

TEST_F(ReaderLedgerTest, WhatTimeMendsIsAskedForWhenTheCallerSaysSo) {
  for (const absl::Status& status : {PeerLeft(), absl::UnavailableError("draining"),
                                     absl::ResourceExhaustedError("too many requests")}) {
    SCOPED_TRACE(status.ToString());
    Make({Stream("train")});
    Open();
    Requests();
    Refuse({"train", 0, 1}, status);
    Refuse({"train", 0, 2}, status);
    EXPECT_TRUE(ledger_->postponed());
    EXPECT_THAT(Requests(), IsEmpty());
    EXPECT_FALSE(ledger_->Ready("train"));
    ledger_->AskAgain();
    EXPECT_FALSE(ledger_->postponed());
    EXPECT_THAT(Requests(), ElementsAre("want train 0/1", "want train 0/2"));
  }
}

TEST_F(ReaderLedgerTest, AStepForWhichThereIsNoMemoryComesBeforeThoseBehindIt) {
  Make({Stream("train")});
  Open();
  Requests();
  EXPECT_TRUE(Deliver(0).ok());
  EXPECT_TRUE(Deliver(2).ok());
  NoMemory(1);
  EXPECT_EQ(Listed().received, 0);
  EXPECT_TRUE(ledger_->postponed());
  EXPECT_THAT(Requests(), IsEmpty());
  ledger_->AskAgain();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/1", "want train 0/2"));
  EXPECT_TRUE(Deliver(1).ok());
  EXPECT_TRUE(Deliver(2).ok());
  EXPECT_EQ(Listed().received, 2);
}

TEST_F(ReaderLedgerTest, WhatOtherDataStreamsHavePrefetchedMakesWayForTheStepThatIsAwaited) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/1);
  Open();
  Requests();
  EXPECT_TRUE(Deliver({"validation", 0, 0}).ok());
  EXPECT_TRUE(Deliver({"validation", 0, 1}).ok());
  NoMemory(0, {"train"});
  EXPECT_EQ(Listed("validation").received, -1) << "it holds nothing any more";
  ledger_->AskAgain();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0"));
  EXPECT_TRUE(Deliver(0).ok());
  EXPECT_THAT(HandedOut(), ElementsAre("train 0/0"));
  EXPECT_THAT(Requests(),
              ElementsAre("want validation 0/0", "want train 0/2", "want validation 0/1"));
}

TEST_F(ReaderLedgerTest, NothingElseLandsUntilTheAwaitedStepThatLacksMemoryIsHere) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/1);
  Open();
  Requests();
  EXPECT_TRUE(Lands({"validation", 0, 0}));
  NoMemory(0, {"train"});
  EXPECT_FALSE(Lands({"train", 0, 0})) << "what is left of an answered request";
  EXPECT_FALSE(Lands({"train", 0, 1}));
  EXPECT_FALSE(Lands({"validation", 0, 0}));
  NoMemory({"validation", 0, 0}, {});
  ledger_->AskAgain();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0"));
  EXPECT_TRUE(Lands({"train", 0, 0}));
  EXPECT_TRUE(Deliver(0).ok());
  EXPECT_TRUE(Lands({"train", 0, 1}));
  EXPECT_THAT(Requests(), ElementsAre("want validation 0/0"));
}

TEST_F(ReaderLedgerTest, WhoStopsWaitingKeepsNoRoom) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/0);
  Open();
  Requests();
  NoMemory(0, {"train"});
  EXPECT_FALSE(Lands({"validation", 0, 0}));
  ledger_->StopAwaiting("train");
  EXPECT_TRUE(Lands({"validation", 0, 0}));
}

TEST_F(ReaderLedgerTest, AStepThatIsPartlyHereMakesWayToo) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/1);
  Open();
  Requests();
  EXPECT_TRUE(Deliver({"train", 0, 1}, 0, 3).ok());
  EXPECT_TRUE(Deliver({"validation", 0, 0}, 0, 3).ok());
  const auto shard = std::make_shared<const int>(0);
  ReceivedShard second = Shard({"validation", 0, 0}, 1, 3);
  second.shard = shard;
  EXPECT_TRUE(ledger_->OnDelivery(std::move(second)).ok());
  EXPECT_EQ(shard.use_count(), 2);
  NoMemory(0, {"train"});
  EXPECT_EQ(shard.use_count(), 1);
  // The rest of it, which is under way.
  EXPECT_FALSE(Lands({"validation", 0, 0}));
  EXPECT_TRUE(Deliver({"validation", 0, 0}, 2, 3).ok());
  ledger_->AskAgain();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0"));
  EXPECT_TRUE(Deliver(0).ok());
  EXPECT_THAT(Requests(), ElementsAre("want validation 0/0", "want train 0/1")) << "from its start";
}

TEST_F(ReaderLedgerTest, AStepThatIsAwaitedAsWellMakesNoWay) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/1);
  Open();
  Requests();
  EXPECT_TRUE(Deliver({"validation", 0, 0}).ok());
  EXPECT_TRUE(Deliver({"validation", 0, 1}).ok());
  NoMemory(0, {"train", "validation"});
  EXPECT_EQ(Listed("validation").received, 0);
  EXPECT_EQ(Next("validation"), "validation 0/0");
}

TEST_F(ReaderLedgerTest, NothingOfOtherDataStreamsMakesWayForAPrefetch) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/1);
  Open();
  Requests();
  EXPECT_TRUE(Deliver({"validation", 0, 0}).ok());
  NoMemory(0, {});
  NoMemory(1, {"train"});
  EXPECT_EQ(Listed("validation").received, 0);
}

TEST_F(ReaderLedgerTest, AReconnectAsksForWhatWasPostponed) {
  Make({Stream("train")});
  Open();
  Requests();
  Refuse({"train", 0, 0}, PeerLeft());
  ledger_->Disconnected();
  EXPECT_FALSE(ledger_->postponed());
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0", "want train 0/1", "want train 0/2"));
}

TEST_F(ReaderLedgerTest, CompleteStepsAreHandedOutWhileAPeerIsAway) {
  Make({Stream("train")});
  Open();
  Requests();
  ASSERT_TRUE(Deliver(0).ok());
  Refuse({"train", 0, 1}, PeerLeft());
  Refuse({"train", 0, 2}, PeerLeft());
  EXPECT_THAT(HandedOut(), ElementsAre("train 0/0"));
}

TEST_F(ReaderLedgerTest, AStepThatBrokeOffIsDeliveredAnew) {
  Make({Stream("train")});
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 2).ok());
  Refuse({"train", 0, 0}, PeerLeft());
  ledger_->AskAgain();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 2).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 2).ok());
  EXPECT_THAT(HandedOut(), ElementsAre("train 0/0"));
}

TEST_F(ReaderLedgerTest, AStepThatIsLateIsAskedForBehindWhatIsHere) {
  Make({Stream("train")}, /*prefetch=*/0);
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 3).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 3).ok());
  Refuse({"train", 0, 0}, absl::DeadlineExceededError("waiting for train/0 from loader 0"));
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0 from 2"));
  ASSERT_TRUE(Deliver({"train", 0, 0}, 2, 3).ok());
  const auto next = ledger_->Next("train");
  EXPECT_EQ(std::get<ReceivedStep>(next).microbatches.size(), 3u);
}

TEST_F(ReaderLedgerTest, AServerThatHasNotSentWhatIsHereMayBeginAnew) {
  Make({Stream("train")}, /*prefetch=*/0);
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 3).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 3).ok());
  ledger_->Disconnected();
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want train 0/0 from 2"));
  ReceivedShard other = Shard({"train", 0, 0}, 0, 2);
  other.head.digest = 4711;
  ASSERT_TRUE(ledger_->OnDelivery(other).ok());
  ASSERT_TRUE(Deliver({"train", 0, 0}, 1, 2).ok());
  const auto next = ledger_->Next("train");
  const auto& step = std::get<ReceivedStep>(next);
  ASSERT_EQ(step.microbatches.size(), 2u) << "nothing of the step as it was";
  EXPECT_EQ(step.microbatches[0].head.digest, 4711u);
}

TEST_F(ReaderLedgerTest, AServerMayNotBeginBehindWhatIsHere) {
  Make({Stream("train")}, /*prefetch=*/0);
  Open();
  Requests();
  ASSERT_TRUE(Deliver({"train", 0, 0}, 0, 3).ok());
  Refuse({"train", 0, 0}, absl::DeadlineExceededError("slow"));
  Requests();
  EXPECT_EQ(Deliver({"train", 0, 0}, 2, 3).code(), absl::StatusCode::kInternal);
}

TEST_F(ReaderLedgerTest, AnErrorComesBehindTheStepsThatAreHere) {
  Make({Stream("train")});
  Open();
  Requests();
  ASSERT_TRUE(Deliver(0).ok());
  const absl::Status stale = WithDetails(absl::AbortedError("generation 8 has begun"),
                                         {"STALE_GENERATION", {{"generation", "8"}}, {}});
  Refuse({"train", 0, 1}, stale);
  EXPECT_THAT(HandedOut(), ElementsAre("train 0/0", "ABORTED"));
  EXPECT_EQ(Listed().next_step, 0) << "an error consumes nothing";
  EXPECT_TRUE(ledger_->Ready("train"));
  const auto next = ledger_->Next("train");
  EXPECT_EQ(std::get<absl::Status>(next), stale);
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(ReaderLedgerTest, AnErrorOutlivesAReconnectAndStaysWithItsDataStream) {
  Make({Stream("train"), Stream("validation")}, /*prefetch=*/0);
  Open();
  Requests();
  Refuse({"train", 0, 0}, absl::FailedPreconditionError("digest conflict"));
  Refuse({"validation", 0, 0}, absl::DeadlineExceededError("slow"));
  ledger_->Disconnected();
  Open();
  EXPECT_THAT(Requests(), ElementsAre("want validation 0/0"));
  EXPECT_EQ(Next("train"), "FAILED_PRECONDITION");
}

TEST_F(ReaderLedgerTest, BelowTheFloorIsNotTheEnd) {
  Make({Stream("train", 5)});
  Open();
  Requests();
  Refuse({"train", 0, 5}, WithDetails(absl::OutOfRangeError("step 5 is below the floor"),
                                      {"BELOW_FLOOR", {{"floor", "6"}}, {}}));
  EXPECT_EQ(Next(), "OUT_OF_RANGE");
}

// --- what must not come

TEST_F(ReaderLedgerTest, AnAnswerToNoRequestIsRefused) {
  Make({Stream("train")});
  Open();
  Requests();
  ReceivedShard shard = Shard({"train", 0, 2});
  ++shard.head.id;
  EXPECT_EQ(ledger_->OnDelivery(std::move(shard)).code(), absl::StatusCode::kInternal);
}

TEST_F(ReaderLedgerTest, AShardOfAnotherStepThanAskedForIsRefused) {
  Make({Stream("train")});
  Open();
  Requests();
  ReceivedShard shard = Shard({"train", 0, 2});
  shard.head.at.step = 0;
  const absl::Status status = ledger_->OnDelivery(std::move(shard));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 2"));
  EXPECT_FALSE(ledger_->Ready("train"));
}

TEST_F(ReaderLedgerTest, AMissingMicrobatchIsRefused) {
  Make({Stream("train")});
  Open();
  Requests();
  EXPECT_EQ(Deliver({"train", 0, 0}, 1, 2).code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(ledger_->Ready("train"));
  ASSERT_TRUE(Deliver({"train", 0, 1}, 0, 3).ok());
  ASSERT_TRUE(Deliver({"train", 0, 1}, 0, 3).ok());  // a repeated one stands for no other
  EXPECT_EQ(Deliver({"train", 0, 1}, 2, 3).code(), absl::StatusCode::kInternal);
}

TEST_F(ReaderLedgerTest, ALastMicrobatchHasToCountThemAll) {
  Make({Stream("train")});
  Open();
  Requests();
  ReceivedShard shard = Shard({"train", 0, 0});
  shard.head.totals.reset();
  EXPECT_EQ(ledger_->OnDelivery(shard).code(), absl::StatusCode::kInternal);
  shard.head.totals = StepTotals{2, {}, {}};
  EXPECT_EQ(ledger_->OnDelivery(shard).code(), absl::StatusCode::kInternal);
}

TEST_F(ReaderLedgerTest, AStepOfALoaderThatDoesNotOwnItIsRefused) {
  Make({Stream("train")});
  Open();
  Requests();
  ReceivedShard shard = Shard({"train", 0, 1});
  shard.head.owner = 0;
  EXPECT_EQ(ledger_->OnDelivery(shard).code(), absl::StatusCode::kInternal);
  shard.head.num_loaders = 0;
  EXPECT_EQ(ledger_->OnDelivery(shard).code(), absl::StatusCode::kInternal);
}

TEST_F(ReaderLedgerTest, OtherLoadersThanTheResumeStateHasAreAnError) {
  ReaderStream stream = Stream("train", 4);
  stream.resume = ResumeState{4, {{0, {0, "after 0"}}, {1, {1, "after 1"}}}};
  Make({stream});
  Open();
  Requests();
  ASSERT_TRUE(Deliver(4).ok());
  const auto next = ledger_->Next("train");
  const auto& status = std::get<absl::Status>(next);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 loaders"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("of 4"));
}

}  // namespace
}  // namespace cpshard
