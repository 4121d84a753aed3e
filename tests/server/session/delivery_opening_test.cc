// Who may open, what a generation agrees on, and how an old one is kept out.
#include <gtest/gtest.h>

#include "proto/error_details.h"
#include "tests/server/session/delivery_peers.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Code = absl::StatusCode;

TEST(DeliveryOpening, TheFirstReaderFixesWhatTheGenerationAgreesOn) {
  struct Row {
    const char* field;
    void (*change)(OpenSession&);
  };
  const Row rows[] = {
      {"attempt", [](OpenSession& open) { open.attempt = "b"; }},
      {"cp_size", [](OpenSession& open) { open.cp_size = 4; }},
      {"readers_per_rank", [](OpenSession& open) { open.readers_per_rank = 2; }},
      {"options", [](OpenSession& open) { open.options = "others"; }},
      {"fingerprint", [](OpenSession& open) { open.fingerprint = "other data"; }},
      {"job", [](OpenSession& open) { open.job = "j"; }},
      {"job_groups", [](OpenSession& open) { open.job_groups = 2; }},
      {"executor", [](OpenSession& open) { open.executor = ExecutorKind::kCuda; }},
      {"resume", [](OpenSession& open) { open.resume[kTrain] = 0, open.resume[kVal] = 3; }},
      {"max_step_bytes", [](OpenSession& open) { open.streams[0].max_step_bytes = 50; }},
  };
  for (const Row& row : rows) {
    DeliveryWorld world;
    ScriptedGroup group(world, 2, 1);
    group.readers[0].Start();
    const OpenSession agreed = group.readers[1].open;
    row.change(group.readers[1].open);
    const absl::Status refused = group.readers[1].Open().status();
    EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "TERMS_DIFFER")) << row.field;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(row.field));
    const auto details = DetailsOf(refused);
    ASSERT_TRUE(details.has_value());
    EXPECT_NE(details->values.at("yours"), details->values.at("theirs")) << row.field;
    EXPECT_THAT(details->values.at("field"), HasSubstr(row.field));
    // Nothing changed by it.
    group.readers[1].open = agreed;
    EXPECT_TRUE(group.readers[1].Open().ok()) << row.field;
  }
}

TEST(DeliveryOpening, AllReadersNameTheSameDataStreams) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.readers[0].Start();
  group.readers[1].open = OpenOf(1, 2, {kTrain, kVal});
  EXPECT_EQ(group.readers[1].Open().status().code(), Code::kFailedPrecondition);
  group.readers[1].open = OpenOf(1, 2, {kVal});
  EXPECT_THAT(group.readers[1].Open().status(), Refused(Code::kNotFound, "UNKNOWN_STREAM"));
}

TEST(DeliveryOpening, ASeatIsOneReaderOfARank) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.readers[0].Start();
  ScriptedReader stranger(world, OpenOf(0, 2));
  stranger.open.reader = "somebody else";
  EXPECT_THAT(stranger.Open().status(), Refused(Code::kFailedPrecondition, "TERMS_DIFFER"));
  ScriptedReader mover(world, OpenOf(1, 2));
  mover.open.reader = "r0";
  EXPECT_THAT(mover.Open().status(), Refused(Code::kFailedPrecondition, "TERMS_DIFFER"));
}

TEST(DeliveryOpening, TensorParallelPeersAreReadersOfOneRank) {
  DeliveryWorld world;
  ScriptedLoader loader(world, HelloOf(0, 1));
  std::deque<ScriptedReader> readers;
  for (int i = 0; i < 2; ++i) {
    OpenSession open = OpenOf(0, 1);
    open.readers_per_rank = 2;
    open.reader = i == 0 ? "tp0" : "tp1";
    readers.emplace_back(world, open);
  }
  loader.Start();
  readers[0].Start();
  EXPECT_THAT(loader.box().positions, IsEmpty()) << "the other one of rank 0 is missing";
  readers[1].Start();
  loader.PushSteps(0, 1);
  EXPECT_THAT(readers[0].Get(0), testing::Optional(IsOkStatus()));
  EXPECT_THAT(readers[1].Get(0), testing::Optional(IsOkStatus()));
  EXPECT_EQ(readers[1].box().shards.at(0).cp_rank, 0);
}

TEST(DeliveryOpening, ALowerIncarnationOfAReaderStaysOut) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  ScriptedReader& now = group.readers[0];
  now.open.incarnation = 5;
  group.Start();
  ScriptedReader old(world, now.open);
  old.open.incarnation = 4;
  const absl::Status refused = old.Open().status();
  EXPECT_THAT(refused, Refused(Code::kAborted, "STALE_INCARNATION"));
  EXPECT_EQ(DetailsOf(refused)->values.at("incarnation"), "5");
  EXPECT_THAT(old.Attach(), Refused(Code::kAborted, "STALE_INCARNATION"));
  group.PushSteps(0, 1);
  group.Consume(0, 1);
}

TEST(DeliveryOpening, AHigherIncarnationTakesTheSeatAndEndsTheCallOfTheOldOne) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& old = group.readers[0];
  old.Ask(0);
  ScriptedReader alone(world, old.open);  // a call of one request
  alone.peer = world.Connect();
  ASSERT_THAT(world.delivery.Attach(alone.peer, old.name(), false, world.now), IsOkStatus());
  const uint64_t asked = alone.Ask(0);
  ScriptedReader young(world, old.open);
  young.open.incarnation = 2;
  young.Start();
  ASSERT_EQ(old.box().ends.size(), 1u);
  EXPECT_EQ(old.box().ends[0].code(), Code::kAborted);
  EXPECT_THAT(alone.AnswerTo(asked),
              testing::Optional(Refused(Code::kAborted, "STALE_INCARNATION")));
  group.PushSteps(0, 1);
  EXPECT_THAT(old.steps(), IsEmpty()) << "what the old one waited for is gone";
  EXPECT_THAT(young.Get(0), testing::Optional(IsOkStatus()));
}

TEST(DeliveryOpening, WhatAReplacedProcessStillSendsCountsForNothing) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& old = group.readers[0];
  group.PushSteps(0, 3);
  group.Consume(0, 1);
  ASSERT_THAT(old.Get(1), testing::Optional(IsOkStatus()));
  ASSERT_THAT(old.Get(2), testing::Optional(IsOkStatus()));
  // It is frozen with commits in flight; the new process goes on behind step 0.
  ScriptedReader young(world, old.open);
  young.open.incarnation = 2;
  StreamOf(young.open).next_step = 1;
  StreamOf(young.open).received = 0;
  young.Start();
  ASSERT_THAT(young.Get(1), testing::Optional(IsOkStatus()));
  ASSERT_THAT(young.Get(2), testing::Optional(IsOkStatus()));
  EXPECT_THAT(old.Commit(2), Refused(Code::kAborted, "STALE_INCARNATION"));
  EXPECT_THAT(young.Get(0), testing::Optional(IsOkStatus())) << "still kept for a replay";
  EXPECT_EQ(group.View().readers.at(0).streams.at(0).next_step, 1);
  EXPECT_THAT(old.Get(1), testing::Optional(Refused(Code::kAborted, "STALE_INCARNATION")));
  EXPECT_THAT(old.ClosePass(0), Refused(Code::kAborted, "STALE_INCARNATION"));
  EXPECT_EQ(group.View().readers.at(0).streams.at(0).pass, 0);
}

TEST(DeliveryOpening, ANewerConnectionOfAReaderReplacesTheOneBefore) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& reader = group.readers[0];
  const PeerId old = reader.peer;
  reader.Ask(0);
  ASSERT_THAT(reader.Attach(), IsOkStatus());
  EXPECT_THAT(world.BoxOf(old).ends, ElementsAre(Refused(Code::kAborted, "REPLACED")));
  group.PushSteps(0, 1);
  EXPECT_THAT(world.BoxOf(old).shards, IsEmpty());
  EXPECT_THAT(reader.Get(0), testing::Optional(IsOkStatus()));
  // The end of the old call takes nothing from the new one.
  world.Disconnect(old);
  EXPECT_TRUE(group.View().readers.at(0).connected);
}

TEST(DeliveryOpening, AnOldGenerationIsRefusedEverywhereWithTheNewNumber) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& old = group.readers[0];
  group.PushSteps(0, 1);
  group.Consume(0, 1);
  ScriptedReader next(world, old.open);
  next.open.generation = 3;
  next.open.attempt = "b";
  next.Start();
  EXPECT_THAT(old.box().ends, ElementsAre(Refused(Code::kAborted, "STALE_GENERATION")));
  const absl::Status statuses[] = {
      old.box().ends.at(0), old.Open().status(), old.Get(1).value_or(absl::OkStatus()),
      old.Commit(0),        old.ClosePass(0),    old.EndOf(old.Close()).value()};
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, Refused(Code::kAborted, "STALE_GENERATION"));
    EXPECT_EQ(DetailsOf(status)->values.at("generation"), "3");
  }
  EXPECT_THAT(old.Attach(), Refused(Code::kAborted, "STALE_GENERATION"));
}

TEST(DeliveryOpening, NothingIsDeliveredToAnOldGenerationOnAnyCall) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& old = group.readers[0];
  old.Ask(0);
  // A call of one request, beside the connection; and one that was replaced, but does not know.
  ScriptedReader alone(world, old.open), frozen(world, old.open);
  alone.peer = world.Connect();
  ASSERT_THAT(world.delivery.Attach(alone.peer, old.name(), false, world.now), IsOkStatus());
  const uint64_t asked = alone.Ask(0);
  frozen.peer = old.peer;
  ASSERT_THAT(old.Attach(), IsOkStatus());
  frozen.Ask(0);
  old.Ask(0);

  ScriptedReader next(world, old.open);
  next.open.generation = 2;
  next.Start();
  EXPECT_THAT(alone.AnswerTo(asked),
              testing::Optional(Refused(Code::kAborted, "STALE_GENERATION")));
  group.PushSteps(0, 2);
  EXPECT_THAT(next.Get(0), testing::Optional(IsOkStatus()));
  EXPECT_THAT(old.steps(), IsEmpty());
  EXPECT_THAT(alone.steps(), IsEmpty());
  EXPECT_THAT(frozen.steps(), IsEmpty());
}

TEST(DeliveryOpening, CommitsOfAnOldGenerationMoveNothing) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& old = group.readers[0];
  group.PushSteps(0, 3);
  for (int64_t step = 0; step < 3; ++step)
    ASSERT_THAT(old.Get(step), testing::Optional(IsOkStatus()));
  ScriptedReader next(world, old.open);
  next.open.generation = 2;
  next.Start();
  for (int64_t step = 0; step < 3; ++step)
    ASSERT_THAT(next.Get(step), testing::Optional(IsOkStatus()));
  EXPECT_THAT(old.Commit(2), Refused(Code::kAborted, "STALE_GENERATION"));
  EXPECT_EQ(group.View().streams.at(0).floor, 0);
  EXPECT_THAT(next.Get(0), testing::Optional(IsOkStatus()));
}

TEST(DeliveryOpening, AFreshServerLearnsTheGenerationFromLoaders) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].hello.generation_seen = 7;
  group.loaders[0].Start();
  group.readers[0].open.generation = 6;
  const absl::Status refused = group.readers[0].Open().status();
  EXPECT_THAT(refused, Refused(Code::kAborted, "STALE_GENERATION"));
  EXPECT_EQ(DetailsOf(refused)->values.at("generation"), "7");
  group.readers[0].open.generation = 7;
  group.readers[0].Start();
  group.PushSteps(0, 1);
  group.Consume(0, 1);
}

TEST(DeliveryOpening, AnOldGenerationThatOpenedFirstIsFencedByTheLoaderThatKnowsBetter) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  ScriptedReader& zombie = group.readers[0];
  StreamOf(zombie.open).next_step = 4;
  StreamOf(zombie.open).resume = ResumeState{1, {{0, {3, "s3"}}}};
  zombie.Start();
  const uint64_t asked = zombie.Ask(4);
  group.loaders[0].hello.generation_seen = 2;
  group.loaders[0].hello.streams[0].released = 9;
  group.loaders[0].Start();
  EXPECT_THAT(group.loaders[0].box().positions, IsEmpty())
      << "a loader is not asked for what it was told is released";
  const auto answer = zombie.AnswerTo(asked);
  EXPECT_TRUE(answer || !zombie.box().ends.empty());
  EXPECT_THAT(answer ? *answer : zombie.box().ends.at(0),
              Refused(Code::kAborted, "STALE_GENERATION"));
  for (const absl::Status& status :
       {zombie.Get(4).value_or(absl::OkStatus()), zombie.Commit(4), zombie.ClosePass(0),
        zombie.Attach(), zombie.EndOf(zombie.Close()).value_or(absl::OkStatus())}) {
    EXPECT_THAT(status, Refused(Code::kAborted, "STALE_GENERATION"));
    EXPECT_EQ(DetailsOf(status)->values.at("generation"), "2");
  }
  ScriptedReader next(world, zombie.open);
  next.open.generation = 2;
  StreamOf(next.open).next_step = 9;
  StreamOf(next.open).resume = ResumeState{1, {{0, {8, "s8"}}}};
  next.Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 9);
}

TEST(DeliveryOpening, AReaderThatIsNotOpenHereIsToldTheInstance) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  absl::Status refused = group.readers[0].Attach();
  EXPECT_THAT(refused, Refused(Code::kNotFound, "UNKNOWN_GROUP"));
  EXPECT_EQ(DetailsOf(refused)->values.at("instance"), "first");
  group.readers[0].Start();
  refused = group.readers[1].Attach();
  EXPECT_THAT(refused, Refused(Code::kNotFound, "UNKNOWN_READER"));
  EXPECT_EQ(DetailsOf(refused)->values.at("instance"), "first");
  EXPECT_THAT(*group.readers[0].EndOf(ScriptedReader(world, OpenOf(1, 2)).Close()),
              Refused(Code::kNotFound, "UNKNOWN_READER"));
  EXPECT_THAT(world.delivery.View("h", world.now).status(),
              Refused(Code::kNotFound, "UNKNOWN_GROUP"));
}

TEST(DeliveryOpening, TheAnswerNamesInstanceGenerationAndPosition) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.loaders[0].Start();
  const auto first = group.readers[0].Open();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->instance, "first");
  EXPECT_EQ(first->generation, 1);
  ASSERT_EQ(first->streams.size(), 1u);
  EXPECT_EQ(first->streams[0].floor, std::nullopt) << "no position before all have opened";
  const auto second = group.readers[1].Open();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->streams.at(0).name, kTrain);
  EXPECT_EQ(second->streams.at(0).pass, 0);
  EXPECT_EQ(second->streams.at(0).floor, 0);
}

// --- behind what was released

TEST(DeliveryOpening, AReaderBehindTheFloorOfItsGenerationIsAZombie) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 4);
  group.Consume(0, 4);  // next is 4; step 3 is kept for a replay
  StreamOf(group.readers[0].open).next_step = 2;
  const absl::Status refused = group.readers[0].Open().status();
  EXPECT_THAT(refused, Refused(Code::kAborted, "ZOMBIE"));
  EXPECT_EQ(DetailsOf(refused)->values.at("floor"), "3");
  StreamOf(group.readers[0].open).next_step = 3;
  group.readers[0].Start();
  EXPECT_THAT(group.readers[0].Get(3), testing::Optional(IsOkStatus()));
}

TEST(DeliveryOpening, AReaderBehindWhatALoaderReleasedInItsGenerationIsAZombie) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.loaders[1].hello.generation_seen = 1;
  group.loaders[1].hello.streams[0].released = 5;
  for (ScriptedLoader& loader : group.loaders) loader.Start();
  ReaderStream& stream = StreamOf(group.readers[0].open);
  stream.next_step = 4;
  stream.resume = ResumeState{2, {{0, {2, "a"}}, {1, {3, "b"}}}};
  const absl::Status refused = group.readers[0].Open().status();
  EXPECT_THAT(refused, Refused(Code::kAborted, "ZOMBIE"));
  EXPECT_EQ(DetailsOf(refused)->values.at("floor"), "5");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("train/4"));
  stream.next_step = 5;
  stream.resume = ResumeState{2, {{0, {4, "a"}}, {1, {3, "b"}}}};
  EXPECT_TRUE(group.readers[0].Open().ok());
}

TEST(DeliveryOpening, ANewGenerationMayGoBackBehindWhatWasReleased) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 4);
  group.Consume(0, 4);
  ScriptedReader& reader = group.readers[0];
  reader.open.generation = 2;
  StreamOf(reader.open).next_step = 1;
  StreamOf(reader.open).resume = ResumeState{1, {{0, {0, "s0"}}}};
  reader.Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 1);
  ASSERT_TRUE(group.loaders[0].position().state.has_value());
  EXPECT_EQ(group.loaders[0].position().state->state, "s0");
}

TEST(DeliveryOpening, ANewGenerationMayAskForAnotherExecutorAndFindsWhatHasLanded) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 3);
  EXPECT_EQ(group.View().executor, ExecutorKind::kAuto);
  group.Consume(0, 1);
  ScriptedReader& reader = group.readers[0];
  reader.open.generation = 2;
  reader.open.executor = ExecutorKind::kCuda;
  reader.open.resume[kTrain] = StreamOf(reader.open).next_step = 1;
  reader.Start();
  EXPECT_EQ(group.View().executor, ExecutorKind::kCuda);
  EXPECT_THAT(reader.Get(1), Optional(IsOkStatus()));
  EXPECT_EQ(reader.box().shards.back().terms->executor, ExecutorKind::kCuda);
  EXPECT_EQ(world.delivery.counters().pushed, 3) << "nothing had to be pushed again";
}

TEST(DeliveryOpening, AReaderIsNotBehindTheCheckpointOfItsGeneration) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  ReaderStream& stream = StreamOf(group.readers[0].open);
  group.readers[0].open.resume[kTrain] = 6;
  stream.next_step = 5;
  stream.resume = ResumeState{1, {{0, {4, "s"}}}};
  EXPECT_EQ(group.readers[0].Open().status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace cpshard
