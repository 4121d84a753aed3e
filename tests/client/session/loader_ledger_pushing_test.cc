// What a loader pushes, what acknowledgements mean, what it keeps.
#include "proto/error_details.h"
#include "tests/client/session/loader_ledger.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(LoaderLedgerTest, WithoutCreditNothingIsPushed) {
  Make();
  ledger_->OnPosition(At(0));
  MakeAll();
  EXPECT_THAT(Messages(), IsEmpty());
  Credit(0);
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
  EXPECT_THAT(Messages(), IsEmpty()) << "once";
}

TEST_F(LoaderLedgerTest, AMicrobatchSaysWhatTheStepIs) {
  Make(1);
  Position position = At(1);
  position.epoch = 4;
  ledger_->OnPosition(position);
  MadeStep made = StepOf(1, 3);
  made.totals = StepTotals{3, 50, 60};
  ledger_->Made(*ledger_->NextWork(), made);
  Credit(1, /*epoch=*/4);
  const std::vector<LoaderLedger::Message> messages = TakeMessages();
  ASSERT_EQ(messages.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    const PushHead& head = std::get<LoaderLedger::Push>(messages[i]).head;
    EXPECT_EQ(head.at, (StepAddress{"train", 0, 1}));
    EXPECT_EQ(head.epoch, 4);
    EXPECT_EQ(head.microbatch, i);
    EXPECT_EQ(head.digest, 100u + i);
    EXPECT_EQ(head.last_microbatch, i == 2);
    EXPECT_EQ(head.totals, i == 0 ? made.totals : std::nullopt);
    EXPECT_EQ(head.state, i == 2 ? made.state : std::nullopt);
  }
}

TEST_F(LoaderLedgerTest, PushesGoInTheOrderOfCredits) {
  Make(0, {"a", "b"});
  ledger_->OnPosition(At(0, "a"));
  ledger_->OnPosition(At(0, "b"));
  Credit({"b", 0, 0});
  Credit({"a", 0, 0});
  Credit({"a", 0, 2});
  Credit({"b", 0, 2});
  MakeAll();
  EXPECT_THAT(Messages(), ElementsAre("b 0/0.0", "a 0/0.0", "a 0/2.0", "b 0/2.0"));
}

TEST_F(LoaderLedgerTest, ACreditOfAStepThatIsNotMadeHoldsBackNoOther) {
  Make(0, {"a", "b"});
  ledger_->OnPosition(At(0, "a"));
  ledger_->OnPosition(At(0, "b"));
  Credit({"a", 0, 0});
  Credit({"b", 0, 0});
  const auto work = ledger_->NextWork();
  ASSERT_EQ(work->stream, "a");
  ledger_->Made(*work, StepOf(0));
  EXPECT_THAT(Messages(), ElementsAre("a 0/0.0"));
  MakeAll();
  EXPECT_THAT(Messages(), ElementsAre("b 0/0.0"));
}

TEST_F(LoaderLedgerTest, CreditsOfOthersAreIgnored) {
  Make();
  ledger_->OnPosition(At(0));
  MakeAll();
  Credit(1);                                     // another loader's step
  Credit(0, /*epoch=*/2);                        // another epoch
  ledger_->OnCredit({{"train", 1, 0}, 1, 100});  // another pass
  Credit({"test", 0, 0});                        // another data stream
  EXPECT_THAT(Messages(), IsEmpty());
  EXPECT_EQ(Work(), "nothing");
}

// --- acknowledgements

TEST_F(LoaderLedgerTest, ALandedStepIsKeptUntilItIsReleased) {
  Make();
  ledger_->OnPosition(At(0));
  for (const int64_t step : {0, 2, 4}) Credit(step);
  MakeAll();
  Messages();
  for (const int64_t step : {0, 2, 4}) Ack(step);
  EXPECT_EQ(ledger_->held_bytes(), 40);
  Release(3);
  EXPECT_EQ(ledger_->held_bytes(), 20);
  EXPECT_EQ(Listed().released, 3);
  EXPECT_EQ(Listed().held_from, 4);
  Release(1);
  EXPECT_EQ(Listed().released, 3) << "it does not come back";
}

TEST_F(LoaderLedgerTest, ReleasesOfAnotherEpochOrPassAreIgnored) {
  Make();
  ledger_->OnPosition(At(0));
  MakeAll();
  Release(5, /*epoch=*/2);
  ledger_->OnReleased({"train", 1, 1, 5});
  EXPECT_EQ(ledger_->held_bytes(), 10);
  EXPECT_EQ(Listed().released, 0);
}

TEST_F(LoaderLedgerTest, WhenNothingIsHeldTheNextStepIsNamed) {
  Make(1);
  EXPECT_EQ(Listed().held_from, 1);
  ledger_->OnPosition(At(1));
  MakeAll();
  EXPECT_EQ(Listed().held_from, 1);
  Release(2);
  EXPECT_EQ(Listed().held_from, 3);
}

TEST_F(LoaderLedgerTest, ABatchThatWasDamagedIsPushedAgainAtOnce) {
  Make();
  ledger_->OnPosition(At(0));
  Credit(0);
  MakeOne(/*microbatches=*/2);
  Messages();
  Ack(0, 1, absl::DataLossError("checksum"));
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.1"));
}

TEST_F(LoaderLedgerTest, ABatchThatIsDamagedAgainAndAgainWaitsAndThenEndsTheLoader) {
  Make();
  ledger_->OnPosition(At(0));
  Credit(0);
  MakeAll();
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
  Ack(0, 0, absl::DataLossError("checksum"));
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
  for (int again = 0; again < 99; ++again) {
    Ack(0, 0, absl::DataLossError("checksum"));
    EXPECT_THAT(Messages(), IsEmpty());
    ledger_->PushAgain();
    EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
  }
  EXPECT_TRUE(ledger_->failure().ok());
  Ack(0, 0, absl::DataLossError("checksum"));
  EXPECT_TRUE(absl::IsDataLoss(ledger_->failure()));
}

TEST_F(LoaderLedgerTest, AStepThatFiveServersLostTheirDeviceWithEndsTheLoader) {
  const absl::Status lost = WithDetails(absl::UnavailableError("the server has lost cuda:0"),
                                        {.reason = "DEVICE_LOST", .retry_after = absl::Seconds(3)});
  Make();
  for (int server = 0; server < 5; ++server) {
    EXPECT_TRUE(ledger_->failure().ok()) << server;
    ledger_->Connected();
    ledger_->OnPosition(At(0));
    Credit(0);
    if (server == 0) MakeOne(/*microbatches=*/2);
    EXPECT_THAT(Messages(), ElementsAre("train 0/0.0", "train 0/0.1"));
    Ack(0, 0, lost);
    Ack(0, 1, lost);  // of the same device
    if (server < 4) ledger_->Disconnected();
  }
  EXPECT_TRUE(absl::IsUnavailable(ledger_->failure()));
  EXPECT_THAT(std::string(ledger_->failure().message()),
              AllOf(HasSubstr("step 0 of data stream 'train'"), HasSubstr("5 servers"),
                    HasSubstr("may be why"), HasSubstr("the server has lost cuda:0")));
}

TEST_F(LoaderLedgerTest, ServersThatOnlyStopEndNoLoaderHoweverMany) {
  Make();
  for (int server = 0; server < 20; ++server) {
    ledger_->Connected();
    ledger_->OnPosition(At(0));
    Credit(0);
    if (server == 0) MakeAll();
    EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
    Ack(0, 0, WithDetails(absl::UnavailableError("it stops"), {.reason = "DRAINING"}));
    ledger_->Disconnected();
  }
  EXPECT_TRUE(ledger_->failure().ok());
}

TEST_F(LoaderLedgerTest, ABatchThatWasRefusedForNowWaits) {
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("no room"), absl::UnavailableError("draining"),
        absl::AbortedError("replaced"), absl::DeadlineExceededError("it did not come in time"),
        absl::CancelledError("the push is void")}) {
    SCOPED_TRACE(status.ToString());
    Make();
    ledger_->OnPosition(At(0));
    Credit(0);
    MakeAll();
    Messages();
    Ack(0, 0, status);
    EXPECT_TRUE(ledger_->postponed());
    EXPECT_THAT(Messages(), IsEmpty());
    ledger_->PushAgain();
    EXPECT_FALSE(ledger_->postponed());
    EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
    Ack(0, 0, status);
    Credit(2);  // any credit says that there is room
    EXPECT_THAT(Messages(), ElementsAre("train 0/0.0", "train 0/2.0"));
    EXPECT_TRUE(ledger_->failure().ok());
  }
}

TEST_F(LoaderLedgerTest, ARefusalOfWhatHasLandedAlreadyMeansNothing) {
  Make();
  ledger_->OnPosition(At(0));
  Credit(0);
  MakeAll();
  Messages();
  Ack(0);
  for (const absl::Status& status :
       {absl::DataLossError("checksum"), absl::ResourceExhaustedError("no credit")}) {
    Ack(0, 0, status);
    EXPECT_FALSE(ledger_->postponed());
    EXPECT_THAT(Messages(), IsEmpty());
  }
}

TEST_F(LoaderLedgerTest, AStepThatTheServerLostIsPushedWithANewCredit) {
  Make();
  ledger_->OnPosition(At(0));
  Credit(0);
  MakeAll();
  Messages();
  Credit(0);
  EXPECT_THAT(Messages(), IsEmpty()) << "it is under way";
  Ack(0);
  EXPECT_THAT(Messages(), IsEmpty());
  Credit(0);
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
}

TEST_F(LoaderLedgerTest, ARefusalThatStaysIsAFailure) {
  Make();
  ledger_->OnPosition(At(0));
  Credit(0);
  MakeAll();
  Messages();
  absl::Status conflict = absl::FailedPreconditionError("another digest than before");
  conflict.SetPayload("details", absl::Cord("DIGEST_CONFLICT"));
  Ack(0, 0, conflict);
  EXPECT_EQ(ledger_->failure().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ledger_->failure().message()),
              HasSubstr("step 0 of data stream 'train' pass 0 microbatch 0 was refused: another"));
  EXPECT_EQ(ledger_->failure().GetPayload("details"), absl::Cord("DIGEST_CONFLICT"));
  EXPECT_THAT(Messages(), IsEmpty());
}

TEST_F(LoaderLedgerTest, AcknowledgementsOfAnotherEpochAreIgnored) {
  Make();
  ledger_->OnPosition(At(0));
  Credit(0);
  MakeAll();
  Messages();
  Ack(0, 0, absl::FailedPreconditionError("too late"), /*epoch=*/2);
  Ack(0, 7, absl::FailedPreconditionError("no such microbatch"));
  EXPECT_TRUE(ledger_->failure().ok());
}

// --- the end

TEST_F(LoaderLedgerTest, TheEndIsFoundAndDeclaredWithoutCredit) {
  Make();
  ledger_->OnPosition(At(0));
  FindEnd(0);
  EXPECT_THAT(Messages(), ElementsAre("end train 0/0"));
  EXPECT_THAT(Messages(), IsEmpty());
  EXPECT_EQ(Work(), "nothing");
}

TEST_F(LoaderLedgerTest, TheEndMayLieBeforeTheLoadersOwnStep) {
  Make();
  ledger_->OnPosition(At(0));
  Credit(0);
  MakeOne();
  FindEnd(1);  // asked for step 2
  EXPECT_THAT(Messages(), ElementsAre("end train 0/1", "train 0/0.0"));
}

TEST_F(LoaderLedgerTest, AnEndThatCannotBeIsAFailure) {
  for (const int64_t end : {-1, 3, 0}) {  // none, behind the step that is not there, before one
    SCOPED_TRACE(end);
    Make();
    ledger_->OnPosition(At(0));
    Credit(0);
    MakeOne();
    FindEnd(end);
    EXPECT_EQ(ledger_->failure().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Messages(), IsEmpty());
  }
}

}  // namespace
}  // namespace cpshard
