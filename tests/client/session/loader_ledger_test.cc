// What a loader makes, and when.
#include "tests/client/session/loader_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(LoaderLedgerTest, NothingIsMadeBeforeThereIsAPosition) {
  Make();
  EXPECT_EQ(Work(), "nothing");
  EXPECT_THAT(Messages(), IsEmpty());
}

TEST_F(LoaderLedgerTest, ANewSourceStandsAtTheStart) {
  Make(0);
  ledger_->OnPosition(At(0));
  EXPECT_EQ(Work(), "train 0/0");
  Make(1);
  ledger_->OnPosition(At(1));
  EXPECT_EQ(Work(), "train 0/1");
}

TEST_F(LoaderLedgerTest, ANewSourceGoesToAPositionBehindTheStart) {
  Make();
  ledger_->OnPosition(WithState(At(6), 4));
  EXPECT_EQ(Work(), "train 0/6 rewound to after 4");
}

TEST_F(LoaderLedgerTest, WithoutAStateTheSourceCountsFromTheStart) {
  Make();
  ledger_->OnPosition(At(6));
  EXPECT_EQ(Work(), "train 0/6 rewound to the start");
}

TEST_F(LoaderLedgerTest, ALaterPassIsReachedFromItsStart) {
  Make();
  Position position = At(0);
  position.pass = 2;
  ledger_->OnPosition(position);
  EXPECT_EQ(Work(), "train 2/0 rewound to the start");
}

TEST_F(LoaderLedgerTest, OneStepIsMadeAheadOfCredit) {
  Make();
  ledger_->OnPosition(At(0));
  EXPECT_THAT(MakeAll(), ElementsAre("train 0/0"));
  Credit(0);
  EXPECT_THAT(MakeAll(), ElementsAre("train 0/2"));
  Credit(2);
  Credit(4);
  EXPECT_THAT(MakeAll(), ElementsAre("train 0/4", "train 0/6"));
  EXPECT_EQ(ledger_->held_bytes(), 40);
}

TEST_F(LoaderLedgerTest, TheSameWorkComesUntilItIsDone) {
  Make();
  ledger_->OnPosition(WithState(At(6), 4));
  EXPECT_EQ(Work(), "train 0/6 rewound to after 4");
  EXPECT_EQ(Work(), "train 0/6 rewound to after 4");
  MakeOne();
  Credit(6);
  EXPECT_EQ(Work(), "train 0/8") << "the source stands there";
}

TEST_F(LoaderLedgerTest, DataStreamsTakeTurns) {
  Make(0, {"a", "b", "c"});
  for (const char* stream : {"a", "b", "c"}) {
    ledger_->OnPosition(At(0, stream));
    for (const int64_t step : {0, 2}) Credit({stream, 0, step});
  }
  EXPECT_THAT(MakeAll(), ElementsAre("a 0/0", "b 0/0", "c 0/0", "a 0/2", "b 0/2", "c 0/2", "a 0/4",
                                     "b 0/4", "c 0/4"));
}

TEST_F(LoaderLedgerTest, ADataStreamWithoutCreditHoldsBackNoOther) {
  Make(0, {"a", "b"});
  ledger_->OnPosition(At(0, "a"));
  ledger_->OnPosition(At(0, "b"));
  for (const int64_t step : {0, 2}) Credit({"b", 0, step});
  EXPECT_THAT(MakeAll(), ElementsAre("a 0/0", "b 0/0", "b 0/2", "b 0/4"));
}

TEST_F(LoaderLedgerTest, AStepThatIsBeingMadeOutlivesTheConnection) {
  Make();
  ledger_->OnPosition(At(0));
  const auto work = ledger_->NextWork();
  ledger_->Disconnected();
  ledger_->Made(*work, StepOf(0));
  ledger_->Connected();
  ledger_->OnPosition(At(0));
  Credit(0);
  EXPECT_THAT(Messages(), ElementsAre("train 0/0.0"));
  EXPECT_EQ(Work(), "train 0/2");
}

TEST_F(LoaderLedgerTest, AStepThatIsBeingMadeIsDroppedWhenThePositionIsElsewhere) {
  Make();
  ledger_->OnPosition(WithState(At(8), 6));
  const auto work = ledger_->NextWork();
  Position back = WithState(At(4), 2);
  back.epoch = 2;
  ledger_->OnPosition(back);
  ledger_->Made(*work, StepOf(8));
  EXPECT_EQ(ledger_->held_bytes(), 0);
  EXPECT_EQ(Work(), "train 0/4 rewound to after 2");
}

TEST_F(LoaderLedgerTest, ASourceThatComesToWhereItIsNeededIsNotRewound) {
  Make();
  ledger_->OnPosition(WithState(At(8), 6));
  const auto work = ledger_->NextWork();
  Position behind = WithState(At(10), 8);
  behind.epoch = 2;
  ledger_->OnPosition(behind);
  ledger_->Made(*work, StepOf(8));
  EXPECT_EQ(Work(), "train 0/10");
}

// --- what cannot be pushed

TEST_F(LoaderLedgerTest, AStepThatCannotBePushedIsAFailure) {
  MadeStep large = StepOf(0);
  large.state = std::string(kMaxLoaderStateBytes + 1, 's');
  MadeStep miscounted = StepOf(0, 3);
  miscounted.totals = StepTotals{2, {}, {}};
  const std::pair<MadeStep, std::string> cases[] = {
      {MadeStep(), "no microbatch"}, {large, "65537 bytes"}, {miscounted, "3 microbatches"}};
  for (const auto& [made, text] : cases) {
    Make();
    ledger_->OnPosition(At(0));
    Credit(0);
    ledger_->Made(*ledger_->NextWork(), made);
    EXPECT_EQ(ledger_->failure().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(ledger_->failure().message()), HasSubstr(text));
    EXPECT_EQ(Work(), "nothing");
    EXPECT_THAT(Messages(), IsEmpty());
  }
}

TEST_F(LoaderLedgerTest, AStateAtTheLimitIsNone) {
  Make();
  ledger_->OnPosition(At(0));
  MadeStep made = StepOf(0);
  made.state = std::string(kMaxLoaderStateBytes, 's');
  ledger_->Made(*ledger_->NextWork(), std::move(made));
  EXPECT_TRUE(ledger_->failure().ok());
}

TEST_F(LoaderLedgerTest, AStepLargerThanItsCreditIsAFailure) {
  Make();
  ledger_->OnPosition(At(0));
  MakeOne(/*microbatches=*/11);  // of 10 bytes
  Credit(0);
  EXPECT_THAT(Messages(), IsEmpty());
  EXPECT_EQ(ledger_->failure().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ledger_->failure().message()), HasSubstr("110 bytes"));
  EXPECT_THAT(std::string(ledger_->failure().message()), HasSubstr("max_step_bytes"));
}

TEST_F(LoaderLedgerTest, WhatIsNotHeldAnyMoreIsHandedToTheCaller) {
  Make();
  const auto batch = std::make_shared<const int>(1);
  const std::weak_ptr<const int> alive = batch;
  const auto made = [&] {
    MadeStep step;
    step.microbatches.push_back({std::make_shared<std::shared_ptr<const int>>(batch), 10, 1});
    return step;
  };
  ledger_->OnPosition(At(0));
  Credit(0);
  ledger_->Made(*ledger_->NextWork(), made());
  EXPECT_EQ(batch.use_count(), 2);
  Release(2);
  EXPECT_EQ(batch.use_count(), 2) << "not let go of inside of the call";
  EXPECT_EQ(ledger_->held_steps(), 0);
  EXPECT_EQ(ledger_->TakeDropped().size(), 1u);
  EXPECT_EQ(batch.use_count(), 1);
  // What nobody asks for any more.
  const LoaderLedger::Work work = *ledger_->NextWork();
  ledger_->OnPosition(At(40));
  ledger_->Made(work, made());
  EXPECT_EQ(ledger_->held_steps(), 0);
  EXPECT_EQ(ledger_->TakeDropped().size(), 1u);
  EXPECT_TRUE(ledger_->TakeDropped().empty());
}

}  // namespace
}  // namespace cpshard
