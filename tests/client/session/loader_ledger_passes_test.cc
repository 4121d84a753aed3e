// Passes one after the other, and the end of all of them.
#include "tests/client/session/loader_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Position InPass(int64_t pass, Position position) {
  position.pass = pass;
  return position;
}

// The pass has steps 0 .. 2: step 0 and 2 are this loader's.
class OnePass : public LoaderLedgerTest {
 protected:
  OnePass() {
    Make(0, {"train", "validation"});
    ledger_->OnPosition(At(0));
    for (const int64_t step : {0, 2}) Credit(step);
    MakeOne();
    MakeOne();
    FindEnd(3);
    Messages();
  }
};

TEST_F(OnePass, TheNextPassBeginsAnewAtTheLoadersOwnStep) {
  Release(2);
  ledger_->OnPassDone({"train", 0});
  EXPECT_EQ(ledger_->held_bytes(), 0);
  LoaderStream listed = Listed();
  EXPECT_EQ(listed.pass, 1);
  EXPECT_EQ(listed.released, 0);
  EXPECT_EQ(listed.held_from, 0);
  EXPECT_EQ(Work(), "nothing") << "there is no position in it";
  ledger_->OnPosition(InPass(1, At(0)));
  EXPECT_EQ(MakeOne(), "train 1/0 rewound to the start");
  EXPECT_THAT(Messages(), IsEmpty()) << "its end is not known";
  EXPECT_EQ(Listed().released, 0);
}

TEST_F(LoaderLedgerTest, APassThatIsLeftEarlyIsDropped) {
  Make();
  ledger_->OnPosition(At(0));
  for (const int64_t step : {0, 2, 4}) Credit(step);
  MakeAll();
  ledger_->OnPassDone({"train", 0});
  EXPECT_THAT(Messages(), IsEmpty());
  ledger_->OnPosition(InPass(1, At(0)));
  EXPECT_EQ(MakeOne(), "train 1/0 rewound to the start");
  EXPECT_EQ(ledger_->held_bytes(), 10);
}

TEST_F(LoaderLedgerTest, AStepOfThePassBeforeIsDropped) {
  Make();
  ledger_->OnPosition(At(0));
  const auto work = ledger_->NextWork();
  ledger_->OnPassDone({"train", 0});
  ledger_->OnPosition(InPass(1, At(0)));
  ledger_->Made(*work, StepOf(0));
  EXPECT_EQ(ledger_->held_bytes(), 0);
  EXPECT_EQ(Work(), "train 1/0 rewound to the start");
}

TEST_F(LoaderLedgerTest, AnEndOfThePassBeforeIsDropped) {
  Make();
  ledger_->OnPosition(At(0));
  const auto work = ledger_->NextWork();
  ledger_->OnPassDone({"train", 0});
  ledger_->OnPosition(InPass(1, At(0)));
  ledger_->MadeEnd(*work, 0);
  EXPECT_THAT(Messages(), IsEmpty());
  EXPECT_EQ(Work(), "train 1/0 rewound to the start");
}

TEST_F(OnePass, AnEndForGoodIsTakenFromAnEarlierPassToo) {
  ledger_->OnPassDone({"validation", 0, /*finished=*/true});
  ledger_->OnPassDone({"train", 3});
  EXPECT_FALSE(ledger_->finished());
  ledger_->OnPassDone({"train", 2, /*finished=*/true});  // the group went back, and ended there
  EXPECT_TRUE(ledger_->finished());
}

TEST_F(OnePass, AStalePassDoneIsIgnored) {
  ledger_->OnPassDone({"train", 0});
  ledger_->OnPosition(InPass(1, At(0)));
  MakeOne();
  ledger_->OnPassDone({"train", 0});
  EXPECT_EQ(Listed().pass, 1);
  EXPECT_EQ(ledger_->held_bytes(), 10);
}

TEST_F(OnePass, AMissedPassDoneIsLearntFromThePosition) {
  Reconnect();
  ledger_->OnPosition(InPass(1, At(0)));
  EXPECT_EQ(ledger_->held_bytes(), 0);
  EXPECT_EQ(Work(), "train 1/0 rewound to the start");
}

TEST_F(OnePass, AMissedPassDoneIsLearntFromALaterOne) {
  ledger_->OnPassDone({"train", 3});
  EXPECT_EQ(Listed().pass, 4);
}

TEST_F(OnePass, AnEarlierPassIsResumedFromItsCheckpoint) {
  ledger_->OnPassDone({"train", 0});
  ledger_->OnPosition(InPass(1, At(0)));
  MakeOne();
  Position back = WithState(At(2), 0);
  back.generation = 8;
  ledger_->OnPosition(back);
  EXPECT_EQ(ledger_->held_bytes(), 0);
  EXPECT_EQ(Work(), "train 0/2 rewound to after 0");
}

TEST_F(OnePass, ALoaderIsFinishedWithItsLastDataStream) {
  ledger_->OnPassDone({"train", 0, /*finished=*/true});
  EXPECT_FALSE(ledger_->finished());
  ledger_->OnPosition(InPass(1, At(0)));
  EXPECT_EQ(Work(), "nothing") << "never again in this generation";
  ledger_->OnPassDone({"validation", 4, /*finished=*/true});
  EXPECT_TRUE(ledger_->finished());
  EXPECT_EQ(ledger_->held_bytes(), 0);
}

TEST_F(OnePass, ALaterGenerationMayResumeWhatWasFinished) {
  ledger_->OnPassDone({"train", 0, /*finished=*/true});
  Position back = WithState(At(2), 0);
  back.generation = 8;
  ledger_->OnPosition(back);
  EXPECT_EQ(Work(), "train 0/2 rewound to after 0");
}

}  // namespace
}  // namespace cpshard
