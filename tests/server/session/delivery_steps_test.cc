// Steps: in which order they are handed out, what comes twice, what is committed.
#include <gtest/gtest.h>

#include "proto/error_details.h"
#include "tests/server/session/delivery_peers.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using Code = absl::StatusCode;

class DeliverySteps : public testing::Test {
 protected:
  void SetUp() override { group.Start(); }

  Item Part(int64_t step, int64_t microbatch, bool last) {
    return {.step = step, .microbatch = microbatch, .last = last, .bytes = 20};
  }
  void Push(const Item& item) {
    const auto ack = loader.Push(item);
    ASSERT_TRUE(ack.has_value());
    ASSERT_TRUE(ack->ok()) << *ack;
  }

  DeliveryWorld world;
  ScriptedGroup group{world, 2, 1};
  ScriptedReader& reader = group.readers[0];
  ScriptedReader& other = group.readers[1];
  ScriptedLoader& loader = group.loaders[0];
};

TEST_F(DeliverySteps, AreReleasedByStepWhateverOrderTheyArriveIn) {
  for (int64_t step = 0; step < 4; ++step) reader.Ask(step);
  Push({.step = 3});
  Push({.step = 1});
  EXPECT_THAT(reader.steps(), IsEmpty()) << "step 0 comes first";
  Push({.step = 0});
  EXPECT_THAT(reader.steps(), ElementsAre(0, 1));
  Push({.step = 2});
  EXPECT_THAT(reader.steps(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DeliverySteps, AreOrderedForAReaderThatAsksBackwards) {
  for (int64_t step = 2; step >= 0; --step) reader.Ask(step);
  group.PushSteps(0, 3);
  EXPECT_THAT(reader.steps(), ElementsAre(0, 1, 2));
}

TEST_F(DeliverySteps, EveryRankGetsItsOwnPartOfTheSameBatch) {
  Push({.step = 0});
  Want want;
  want.at.stream = kTrain;
  want.keys = {"labels"};
  reader.Ask(want);
  other.Ask(0);
  const DeliverShard& mine = reader.box().shards.at(0);
  const DeliverShard& theirs = other.box().shards.at(0);
  EXPECT_EQ(mine.payload, theirs.payload);
  EXPECT_EQ(mine.head.digest, DigestOf({.step = 0}));
  EXPECT_EQ(mine.cp_rank, 0);
  EXPECT_EQ(theirs.cp_rank, 1);
  EXPECT_THAT(mine.keys, ElementsAre("labels"));
  EXPECT_THAT(theirs.keys, IsEmpty());
}

TEST_F(DeliverySteps, AskingAgainGivesTheSame) {
  Push({.step = 0});
  for (int i = 0; i < 3; ++i) ASSERT_THAT(reader.Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(reader.box().shards[0].head.digest, reader.box().shards[2].head.digest);
  EXPECT_EQ(reader.box().shards[0].payload, reader.box().shards[2].payload);
}

TEST_F(DeliverySteps, PrefetchingCommitsNothing) {
  group.PushSteps(0, 4);
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_THAT(reader.Get(step), Optional(IsOkStatus()));
    ASSERT_THAT(other.Get(step), Optional(IsOkStatus()));
  }
  EXPECT_EQ(group.View().streams.at(0).floor, 0);
  EXPECT_EQ(group.View().readers.at(0).streams.at(0).next_step, 0);
  EXPECT_EQ(group.View().readers.at(0).streams.at(0).delivered, 3);
  EXPECT_THAT(reader.Get(0), Optional(IsOkStatus()));
  EXPECT_THAT(loader.credits(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DeliverySteps, TheFloorIsWhatTheSlowestReaderCommittedLessTheReplay) {
  group.PushSteps(0, 4);
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_THAT(reader.Get(step), Optional(IsOkStatus()));
    ASSERT_THAT(other.Get(step), Optional(IsOkStatus()));
  }
  ASSERT_THAT(reader.Commit(3), IsOkStatus());
  EXPECT_EQ(group.View().streams.at(0).floor, 0);
  ASSERT_THAT(other.Commit(2), IsOkStatus());
  EXPECT_EQ(group.View().streams.at(0).floor, 2);
  EXPECT_THAT(other.Get(2), Optional(IsOkStatus())) << "one committed step stays";
  EXPECT_THAT(other.Get(1), Optional(Refused(Code::kOutOfRange, "BELOW_FLOOR")));
  ASSERT_THAT(other.Commit(1), IsOkStatus()) << "an old one says nothing new";
  EXPECT_EQ(group.View().readers.at(1).streams.at(0).next_step, 3);
}

TEST_F(DeliverySteps, ACommitAheadOfWhatWasDeliveredIsRefused) {
  group.PushSteps(0, 4);
  ASSERT_THAT(reader.Get(1), Optional(IsOkStatus()));
  const absl::Status refused = reader.Commit(2);
  EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "AHEAD_OF_DELIVERY"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("train/2"));
  EXPECT_EQ(DetailsOf(refused)->values.at("delivered"), "1");
  EXPECT_EQ(group.View().readers.at(0).streams.at(0).next_step, 0) << "and moved nothing";
  EXPECT_THAT(reader.Commit(1), IsOkStatus());
}

TEST_F(DeliverySteps, AReaderMayCommitWhatItReceivedBeforeItOpened) {
  group.PushSteps(0, 4);
  for (int64_t step = 0; step < 3; ++step) ASSERT_THAT(reader.Get(step), Optional(IsOkStatus()));
  StreamOf(reader.open).next_step = 1;
  StreamOf(reader.open).received = 2;
  reader.Start();
  EXPECT_THAT(reader.Commit(2), IsOkStatus());
  EXPECT_THAT(reader.Commit(3), Refused(Code::kFailedPrecondition, "AHEAD_OF_DELIVERY"));
}

TEST_F(DeliverySteps, OpeningAtAStepCommitsTheOneBefore) {
  group.PushSteps(0, 4);
  group.Consume(0, 1);
  for (ScriptedReader* one : {&reader, &other}) {
    ASSERT_THAT(one->Get(2), Optional(IsOkStatus()));
    StreamOf(one->open).next_step = 3;
    StreamOf(one->open).received = 2;
    one->Start();
  }
  EXPECT_EQ(group.View().streams.at(0).floor, 2);
}

TEST_F(DeliverySteps, AStepIsCommittedOnlyWhenAllOfItWasDelivered) {
  Item first = Part(0, 0, false);
  first.totals = StepTotals{2, 14, 18};
  Push(first);
  reader.Ask(0);
  ASSERT_EQ(reader.box().shards.size(), 1u);
  EXPECT_THAT(reader.Commit(0), Refused(Code::kFailedPrecondition, "AHEAD_OF_DELIVERY"));
  Push(Part(0, 1, true));
  EXPECT_THAT(reader.Commit(0), IsOkStatus());
}

// --- microbatches

TEST_F(DeliverySteps, TheTotalsOfAStepAreThoseOfAllItsMicrobatches) {
  Item parts[] = {Part(0, 0, false), Part(0, 1, false), Part(0, 2, true)};
  for (int i = 0; i < 3; ++i) {
    parts[i].num_label_tokens = 10 + i;
    parts[i].num_tokens_excl_tail_pad = 100 * i;
  }
  reader.Ask(0);
  Push(parts[2]);
  Push(parts[0]);
  EXPECT_THAT(reader.steps(), IsEmpty()) << "not before all of it is there";
  Push(parts[1]);
  ASSERT_EQ(reader.box().shards.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    const DeliveryHead& head = reader.box().shards[i].head;
    EXPECT_EQ(head.microbatch, i);
    EXPECT_EQ(head.last, i == 2);
    EXPECT_EQ(head.totals, (StepTotals{3, 33, 300}));
  }
}

TEST_F(DeliverySteps, ATotalThatOneMicrobatchDoesNotTellIsAbsent) {
  Item silent = Part(0, 1, true);
  silent.num_label_tokens.reset();
  Push(Part(0, 0, false));
  Push(silent);
  reader.Ask(0);
  EXPECT_EQ(reader.box().shards.at(0).head.totals, (StepTotals{2, std::nullopt, 18}));
}

TEST_F(DeliverySteps, MicrobatchesAreReleasedEarlyOnlyWhereTheTotalsWereDeclared) {
  reader.Ask(0);
  reader.Ask(1);
  Item declared = Part(1, 0, false);
  declared.totals = StepTotals{2, 14, 18};
  Push(declared);
  Push(Part(0, 0, false));
  EXPECT_THAT(reader.steps(), IsEmpty()) << "0 declared nothing; 1 is not the first";
  Push(Part(0, 1, true));
  EXPECT_THAT(reader.steps(), ElementsAre(0, 0, 1));
  const DeliveryHead& early = reader.box().shards.at(2).head;
  EXPECT_EQ(early.totals, declared.totals);
  EXPECT_FALSE(early.last);
  Push(Part(1, 1, true));
  EXPECT_THAT(reader.steps(), ElementsAre(0, 0, 1, 1));
  EXPECT_TRUE(reader.box().shards.at(3).head.last);
}

TEST_F(DeliverySteps, TotalsThatDoNotHoldFailTheGeneration) {
  const StepTotals wrong[] = {{3, 14, 18}, {2, 15, 18}, {2, 14, 19}};
  for (const StepTotals& totals : wrong) {
    DeliveryWorld world_of;
    ScriptedGroup of(world_of, 1, 1);
    of.Start();
    Item first = Part(0, 0, false);
    first.totals = totals;
    ASSERT_THAT(of.loaders[0].Push(first), Optional(IsOkStatus()));
    const uint64_t asked = of.readers[0].Ask(0);
    const auto ack = of.loaders[0].Push(Part(0, 1, true));
    EXPECT_THAT(ack, Optional(Refused(Code::kFailedPrecondition, "TOTALS_DIFFER")));
    EXPECT_THAT(std::string(ack->message()), HasSubstr("train/0"));
    EXPECT_THAT(of.readers[0].AnswerTo(asked),
                Optional(Refused(Code::kFailedPrecondition, "TOTALS_DIFFER")));
    EXPECT_EQ(of.readers[0].box().shards.size(), 1u) << "the second is not handed out";
    EXPECT_EQ(world_of.alerts.size(), 1u);
  }
}

TEST_F(DeliverySteps, OneMicrobatchCanBeAskedForAlone) {
  Push(Part(0, 0, false));
  Push(Part(0, 1, true));
  Want want;
  want.at.stream = kTrain;
  want.microbatch = 1;
  EXPECT_THAT(reader.AnswerTo(reader.Ask(want)), Optional(IsOkStatus()));
  ASSERT_EQ(reader.box().shards.size(), 1u);
  EXPECT_EQ(reader.box().shards[0].head.microbatch, 1);
  want.microbatch = 2;
  const auto beyond = reader.AnswerTo(reader.Ask(want));
  ASSERT_TRUE(beyond.has_value());
  EXPECT_EQ(beyond->code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(beyond->message()), HasSubstr("train/0"));
}

// --- what comes twice

TEST_F(DeliverySteps, APushThatComesAgainIsTakenAsThere) {
  Push({.step = 0});
  Push({.step = 0});
  Item silent{.step = 0};
  silent.send_digest = false;
  Push(silent);
  EXPECT_EQ(world.delivery.counters().pushed, 1);
  EXPECT_EQ(world.delivery.counters().duplicates, 2);
  EXPECT_THAT(reader.Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(reader.box().shards.size(), 1u);
}

TEST_F(DeliverySteps, BelowTheFloorAPushIsTakenAsThere) {
  group.PushSteps(0, 4);
  group.Consume(0, 4);
  Push({.step = 1});
  Item silent{.step = 0};
  silent.send_digest = false;
  EXPECT_EQ(loader.Begin(silent), 0u) << "its bytes are not looked at";
  EXPECT_THAT(loader.last_ack(), Optional(IsOkStatus()));
  EXPECT_EQ(world.delivery.counters().pushed, 4);
}

TEST_F(DeliverySteps, OtherContentUnderTheSameAddressFailsTheGenerationAndNotTheNext) {
  struct Row {
    const char* what;
    int64_t step;
    bool send_digest;
  };
  for (const Row& row : {Row{"in the window", 3, true}, Row{"in the window, not named", 3, false},
                         Row{"below the floor", 0, true}}) {
    SCOPED_TRACE(row.what);
    DeliveryWorld world_of;
    ScriptedGroup of(world_of, 2, 1);
    of.Start();
    of.PushSteps(0, 4);
    of.Consume(0, 3);
    const uint64_t waits = of.readers[1].Ask(4);
    Item conflict{.step = row.step};
    conflict.digest = 4711;
    conflict.send_digest = row.send_digest;
    const auto ack = of.loaders[0].Push(conflict);
    ASSERT_TRUE(ack.has_value());
    EXPECT_THAT(*ack, Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT"));
    EXPECT_THAT(std::string(ack->message()), HasSubstr("train/" + std::to_string(row.step)));
    EXPECT_THAT(std::string(ack->message()), HasSubstr("4711"));
    EXPECT_EQ(world_of.alerts.size(), 1u);
    EXPECT_EQ(world_of.alerts[0].group, "g");
    EXPECT_EQ(world_of.delivery.counters().digest_conflicts, 1);
    EXPECT_THAT(of.readers[1].AnswerTo(waits),
                Optional(Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT")));
    EXPECT_THAT(of.readers[0].Get(3),
                Optional(Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT")))
        << "not even what was there before";
    EXPECT_THAT(of.readers[0].Open().status(),
                Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT"));
    EXPECT_FALSE(of.loaders[0].Push(conflict)->ok());
    EXPECT_EQ(world_of.alerts.size(), 1u) << "once is enough";
    // The next generation begins with nothing of it.
    for (ScriptedReader& one : of.readers) {
      one.open.generation = 2;
      StreamOf(one.open).next_step = 3;
      StreamOf(one.open).received = 2;
      StreamOf(one.open).resume = ResumeState{1, {{0, {2, "s2"}}}};
    }
    for (ScriptedReader& one : of.readers) one.Start();
    EXPECT_EQ(of.loaders[0].position().from_step, 3);
    EXPECT_THAT(of.loaders[0].Push({.step = 3, .digest = 4711}), Optional(IsOkStatus()));
    EXPECT_THAT(of.readers[0].Get(3), Optional(IsOkStatus()));
  }
}

TEST_F(DeliverySteps, ADigestOfAMicrobatchThatWasLostWithItsProcessIsStillHeldTo) {
  Push(Part(0, 0, false));
  loader.hello.incarnation = 2;
  loader.Start();
  Item changed = Part(0, 0, false);
  changed.digest = 4711;
  EXPECT_THAT(loader.Push(changed),
              Optional(Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT")));
}

TEST_F(DeliverySteps, ARingOfDigestsRemembersTheLatest4096) {
  DeliveryOptions options = SmallOptions();
  DeliveryWorld long_world(options);
  ScriptedGroup of(long_world, 1, 1);
  of.Start();
  for (int64_t step = 0; step < 4200; ++step) {
    of.PushSteps(step, step + 1);
    of.Consume(step, step + 1);
  }
  // 104 .. 4199 are remembered.
  EXPECT_THAT(of.loaders[0].Push({.step = 103, .digest = 1}), Optional(IsOkStatus()));
  EXPECT_THAT(of.loaders[0].Push({.step = 104, .digest = 1}),
              Optional(Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT")));
}

TEST_F(DeliverySteps, AfterARewindTheRingRemembersWhatCameSince) {
  DeliveryWorld long_world;
  ScriptedGroup of(long_world, 1, 1);
  of.Start();
  for (int64_t step = 0; step < 4200; ++step) {
    of.PushSteps(step, step + 1);
    of.Consume(step, step + 1);
  }
  of.readers[0].open.generation = 2;
  of.readers[0].Start();
  ASSERT_EQ(of.loaders[0].position().from_step, 0);
  ASSERT_THAT(of.loaders[0].Push({.step = 0}), Optional(IsOkStatus()));
  EXPECT_THAT(of.loaders[0].Push({.step = 0, .digest = 1}),
              Optional(Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT")));
}

// --- steps that are received in parts

TEST_F(DeliverySteps, ARequestGoesOnBehindWhatWasDelivered) {
  Item first = Part(0, 0, false);
  first.totals = StepTotals{3, std::nullopt, std::nullopt};
  Push(first);
  Push(Part(0, 1, false));
  Want want;
  want.at = {kTrain, 0, 0};
  want.timeout_ms = 1000;
  const uint64_t late = reader.Ask(want);
  world.Pass(absl::Seconds(2));
  EXPECT_THAT(reader.AnswerTo(late), Optional(Refused(Code::kDeadlineExceeded, "NOT_READY")));
  ASSERT_EQ(reader.box().shards.size(), 2u);
  want.from_microbatch = 2;
  const uint64_t again = reader.Ask(want);
  EXPECT_EQ(reader.box().shards.size(), 2u) << "nothing comes twice";
  Push(Part(0, 2, true));
  EXPECT_THAT(reader.AnswerTo(again), Optional(IsOkStatus()));
  ASSERT_EQ(reader.box().shards.size(), 3u);
  EXPECT_EQ(reader.box().shards[2].head.microbatch, 2);
  EXPECT_THAT(reader.Commit(0), IsOkStatus()) << "all of it was delivered";
}

TEST_F(DeliverySteps, ARequestForWhatWasNotDeliveredBeginsWithTheFirstMicrobatch) {
  Push(Part(0, 0, false));
  Push(Part(0, 1, true));
  Want want;
  want.at = {kTrain, 0, 0};
  want.from_microbatch = 1;
  EXPECT_THAT(reader.AnswerTo(reader.Ask(want)), Optional(IsOkStatus()));
  EXPECT_EQ(reader.box().shards.size(), 2u) << "this reader has not had microbatch 0";
}

TEST_F(DeliverySteps, AReaderThatOpensAnewGetsTheWholeStep) {
  Item first = Part(0, 0, false);
  first.totals = StepTotals{2, std::nullopt, std::nullopt};
  Push(first);
  reader.Ask(0);
  ASSERT_EQ(reader.box().shards.size(), 1u);
  reader.Start();
  Want want;
  want.at = {kTrain, 0, 0};
  want.from_microbatch = 1;
  reader.Ask(want);
  ASSERT_EQ(reader.box().shards.size(), 1u);
  EXPECT_EQ(reader.box().shards[0].head.microbatch, 0);
}

}  // namespace
}  // namespace cpshard
