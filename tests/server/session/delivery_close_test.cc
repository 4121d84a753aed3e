// Closing a session, and groups that nobody comes back to.
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

TEST(DeliveryClose, IsAnsweredWhenAllReadersHaveClosedAndAgainWhenAsked) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.Start();
  group.PushSteps(0, 2);
  group.Consume(0, 2);
  const PeerId first = group.readers[0].Close();
  EXPECT_EQ(group.readers[0].EndOf(first), std::nullopt);
  const PeerId again = group.readers[0].Close();
  EXPECT_EQ(group.readers[0].EndOf(again), std::nullopt);
  const PeerId second = group.readers[1].Close();
  for (const PeerId call : {first, again, second}) {
    EXPECT_THAT(world.BoxOf(call).ends, ElementsAre(IsOkStatus()));
  }
  EXPECT_TRUE(group.View().ended);
  EXPECT_THAT(group.readers[0].EndOf(group.readers[0].Close()), Optional(IsOkStatus()))
      << "its answer was lost";
  for (ScriptedLoader& loader : group.loaders) {
    EXPECT_THAT(loader.box().dones, ElementsAre(PassDone{kTrain, 0, true}));
  }
  EXPECT_THAT(group.readers[0].Open().status(), Refused(Code::kAborted, "STALE_GENERATION"));
}

TEST(DeliveryClose, ALoaderThatComesToAnEndedGenerationIsDoneUnlessItIsForTheNext) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.readers[0].Close();
  ASSERT_TRUE(group.View().ended);
  ScriptedLoader late(world, HelloOf(0, 1));
  late.hello.incarnation = 5;
  late.Start();
  EXPECT_THAT(late.box().dones, ElementsAre(PassDone{kTrain, 0, true}));

  ScriptedLoader next(world, HelloOf(0, 1));
  next.hello.incarnation = 6;
  next.hello.generation_seen = 2;
  next.Start();
  EXPECT_THAT(next.box().lines, IsEmpty()) << "it waits for its readers";
  ScriptedReader reader(world, OpenOf(0, 1));
  reader.open.generation = 2;
  reader.Start();
  EXPECT_EQ(next.position().generation, 2);
  EXPECT_EQ(next.position().from_step, 0);
}

TEST(DeliveryClose, AnswersWhatTheReaderStillWaitsFor) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  const uint64_t waits = group.readers[0].Ask(0);
  group.readers[0].Close();
  ASSERT_TRUE(group.readers[0].AnswerTo(waits).has_value());
  EXPECT_EQ(group.readers[0].AnswerTo(waits)->code(), Code::kCancelled);
}

TEST(DeliveryClose, IsAnsweredWhenThoseWhoHaveLeftDoNotComeBack) {
  for (const bool closes_first : {false, true}) {
    SCOPED_TRACE(closes_first);
    DeliveryWorld world;
    ScriptedGroup group(world, 2, 1);
    group.Start();
    PeerId call = 0;
    if (closes_first) call = group.readers[0].Close();
    group.readers[1].Disconnect();
    world.Pass(world.options.rank_timeout);
    if (!closes_first) call = group.readers[0].Close();
    world.Pass(absl::Seconds(1));
    EXPECT_EQ(group.readers[0].EndOf(call), std::nullopt) << "it may come back";
    EXPECT_EQ(world.alerts.size(), 1) << "its room is free";
    world.Pass(world.options.rank_timeout);
    EXPECT_THAT(group.readers[0].EndOf(call), Optional(IsOkStatus()));
  }
}

TEST(DeliveryClose, AReaderThatRestartsFromBeforeItClosedAPassIsToldOfItsEndAndGoesOn) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.PushSteps(0, 2);
  ASSERT_THAT(group.loaders[0].End(2), IsOkStatus());
  group.Consume(0, 2);
  for (ScriptedReader& reader : group.readers) {
    ASSERT_THAT(reader.ClosePass(0), IsOkStatus());
  }
  ReaderStream& train = StreamOf(group.readers[0].open);
  ++group.readers[0].open.incarnation;
  train.next_step = 1;
  EXPECT_THAT(group.readers[0].Open().status(), Refused(Code::kAborted, "ZOMBIE"));
  train.next_step = 2;
  group.readers[0].Start();
  EXPECT_THAT(group.readers[0].Get(2), Optional(Refused(Code::kOutOfRange, "END_OF_STREAM")));
  EXPECT_THAT(group.readers[0].ClosePass(0), IsOkStatus());
  const uint64_t first = group.readers[0].Ask(0, kTrain, 1);
  const uint64_t second = group.readers[1].Ask(0, kTrain, 1);
  group.PushSteps(0, 1);
  EXPECT_THAT(group.readers[0].AnswerTo(first), Optional(IsOkStatus()));
  EXPECT_THAT(group.readers[1].AnswerTo(second), Optional(IsOkStatus()));
}

TEST(DeliveryClose, AReaderThatRestartsAfterAllHaveFinishedIsToldOfTheEndOnceMore) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.PushSteps(0, 2);
  ASSERT_THAT(group.loaders[0].End(2), IsOkStatus());
  group.Consume(0, 2);
  for (ScriptedReader& reader : group.readers) {
    ASSERT_THAT(reader.ClosePass(0, /*finished=*/true), IsOkStatus());
  }
  ReaderStream& train = StreamOf(group.readers[0].open);
  ++group.readers[0].open.incarnation;
  train.next_step = 1;  // what comes there is gone
  EXPECT_THAT(group.readers[0].Open().status(), Refused(Code::kAborted, "ZOMBIE"));
  train.next_step = 2;
  group.readers[0].Start();
  EXPECT_THAT(group.readers[0].Get(2), Optional(Refused(Code::kOutOfRange, "END_OF_STREAM")));
  ASSERT_THAT(group.readers[0].ClosePass(0, /*finished=*/true), IsOkStatus());
  const PeerId first = group.readers[0].Close(), second = group.readers[1].Close();
  EXPECT_THAT(group.readers[0].EndOf(first), Optional(IsOkStatus()));
  EXPECT_THAT(group.readers[1].EndOf(second), Optional(IsOkStatus()));
}

TEST(DeliveryClose, OnANewServerIsAnsweredWithoutThoseWhoDoNotComeBack) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.loaders[0].Start();
  StreamOf(group.readers[0].open).closed = StreamOf(group.readers[0].open).finished = true;
  group.readers[0].Start();
  const PeerId call = group.readers[0].Close();
  world.Pass(world.options.rank_timeout - absl::Seconds(1));
  EXPECT_EQ(group.readers[0].EndOf(call), std::nullopt);
  world.Pass(absl::Seconds(1));
  EXPECT_THAT(group.readers[0].EndOf(call), Optional(IsOkStatus()));
  EXPECT_THAT(group.loaders[0].box().dones, ElementsAre(PassDone{kTrain, 0, true}));
  EXPECT_TRUE(group.View().ended);
}

TEST(DeliveryClose, IsNotTakenForAReaderThatLeft) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.PushSteps(0, 1);
  group.Consume(0, 1);
  group.readers[1].Close();
  group.readers[1].Disconnect();
  const uint64_t waits = group.readers[0].Ask(1);
  world.Pass(world.options.rank_timeout + absl::Seconds(1));
  EXPECT_EQ(group.readers[0].AnswerTo(waits), std::nullopt);
  group.PushSteps(1, 2);
  EXPECT_THAT(group.readers[0].AnswerTo(waits), Optional(IsOkStatus()));
}

TEST(DeliveryClose, AGroupWhoseReadersAllLeftGivesItsRoomToOthersAndGoesOnWhenTheyReturn) {
  DeliveryOptions options = SmallOptions();
  options.budget_bytes = (options.replay_steps + 2) * kStepBytes;  // for one group
  DeliveryWorld world(options);
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 3);
  group.Consume(0, 2);
  group.readers[0].Disconnect();
  ScriptedGroup other(world, 1, 1, {kTrain}, "other");
  EXPECT_THAT(other.readers[0].Open().status(), Refused(Code::kResourceExhausted, "BUDGET"));
  world.Pass(world.options.rank_timeout);
  EXPECT_EQ(world.delivery.counters().used_bytes, 0);
  EXPECT_THAT(world.alerts, ElementsAre(testing::Field(&Alert::code, "GROUP_ABANDONED")));
  EXPECT_THAT(other.readers[0].Open().status(), IsOkStatus());
  other.readers[0].Close();  // room for the first one again

  ReaderStream& train = StreamOf(group.readers[0].open);
  train.next_step = 2;
  train.resume = ResumeState{1, {{0, {1, "state"}}}};
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 2) << "as on a new server";
  group.PushSteps(2, 3);
  EXPECT_THAT(group.readers[0].Get(2), Optional(IsOkStatus()));
}

TEST(DeliveryClose, AGroupWhoseReadersAllLeftIsNotTakenOverByAnEarlierGeneration) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.readers[0].open.generation = 3;
  group.Start();
  group.readers[0].Disconnect();
  world.Pass(world.options.rank_timeout);
  group.readers[0].open.generation = 2;
  EXPECT_THAT(group.readers[0].Open().status(), Refused(Code::kAborted, "STALE_GENERATION"));
}

TEST(DeliveryClose, AGroupWhoseReadersAllLeftDoesNotGoBackBehindWhatItsLoadersWereTold) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 3);
  group.Consume(0, 3);
  ASSERT_EQ(group.loaders[0].box().released.back().before, 2);
  ScriptedReader& reader = group.readers[0];
  reader.Disconnect();
  world.Pass(world.options.rank_timeout);
  StreamOf(reader.open).next_step = 1;
  StreamOf(reader.open).resume = ResumeState{1, {{0, {0, "s0"}}}};
  EXPECT_THAT(reader.Open().status(), Refused(Code::kAborted, "ZOMBIE"))
      << "its loader may have let go of step 1";
  StreamOf(reader.open).next_step = 2;
  StreamOf(reader.open).resume = ResumeState{1, {{0, {1, "s1"}}}};
  reader.Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 2);
}

TEST(DeliveryClose, StaysClosedWhenAllOthersHaveLeft) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  const PeerId call = group.readers[0].Close();
  group.readers[1].Disconnect();
  world.Pass(world.options.rank_timeout);
  ASSERT_EQ(world.alerts.size(), 1);
  group.readers[1].Start();
  group.PushSteps(0, 1);
  EXPECT_THAT(group.readers[1].Get(0), Optional(IsOkStatus()));
  group.readers[1].Close();
  EXPECT_THAT(group.readers[0].EndOf(call), Optional(IsOkStatus()));
}

TEST(DeliveryClose, AReaderThatHasClosedHoldsNobodyBack) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.PushSteps(0, 4);
  group.readers[1].Close();
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_THAT(group.readers[0].Get(step), Optional(IsOkStatus()));
  }
  ASSERT_THAT(group.readers[0].Commit(3), IsOkStatus());
  EXPECT_EQ(group.View().streams.at(0).floor, 3);
}

TEST(DeliveryClose, ACallerThatGivesUpMayAskAgain) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  const PeerId gone = group.readers[0].Close();
  world.Disconnect(gone);
  group.readers[1].Close();
  EXPECT_THAT(world.BoxOf(gone).ends, IsEmpty());
  EXPECT_THAT(group.readers[0].EndOf(group.readers[0].Close()), Optional(IsOkStatus()));
}

TEST(DeliveryClose, AGenerationThatHasFailedCanBeClosed) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  for (ScriptedReader& reader : group.readers) StreamOf(reader.open).next_step = 3;
  group.Start();
  ASSERT_THAT(group.View().failure, HasSubstr("train/2"));
  const PeerId first = group.readers[0].Close(), second = group.readers[1].Close();
  EXPECT_TRUE(group.readers[0].EndOf(first).has_value()) << "nobody waits for ever";
  EXPECT_TRUE(group.readers[1].EndOf(second).has_value());
}

TEST(DeliveryClose, ANewGenerationEndsWhatWaitsToBeClosed) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  const PeerId call = group.readers[0].Close();
  ScriptedReader next(world, OpenOf(0, 1));
  next.open.generation = 2;
  next.Start();
  EXPECT_THAT(group.readers[0].EndOf(call), Optional(Refused(Code::kAborted, "STALE_GENERATION")));
}

TEST(DeliveryClose, ANewGenerationCanBeOpenedAfterOneThatEnded) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 4);
  group.Consume(0, 3);
  ASSERT_THAT(group.readers[0].EndOf(group.readers[0].Close()), Optional(IsOkStatus()));
  group.readers[0].open.generation = 2;
  StreamOf(group.readers[0].open).next_step = 3;
  StreamOf(group.readers[0].open).resume = ResumeState{1, {{0, {2, "s2"}}}};
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 3);
  group.PushSteps(3, 5);
  group.Consume(3, 5);
}

}  // namespace
}  // namespace cpshard
