// Where a data stream begins, when it is sought, and what is left of it then.
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

ResumeState OneLoader(int64_t step, const std::string& state) {
  return ResumeState{1, {{0, {step, state}}}};
}

TEST(DeliveryPosition, NothingMovesUntilAllRanksHaveOpenedAndAllLoadersSaidHello) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.loaders[0].Start();
  group.readers[0].Start();
  group.readers[0].Ask(0);
  group.loaders[1].Start();
  EXPECT_THAT(group.loaders[0].box().lines, IsEmpty()) << "a rank is missing";
  EXPECT_EQ(group.View().streams.at(0).floor, std::nullopt);
  EXPECT_EQ(group.View().streams.at(0).granted_steps, 0);
  EXPECT_THAT(group.View().streams.at(0).waiting_for, HasSubstr("rank 1"));
  group.readers[1].Start();
  EXPECT_EQ(group.View().streams.at(0).floor, 0);
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(0, 2));
  EXPECT_THAT(group.loaders[1].credits(), ElementsAre(1, 3));
}

TEST(DeliveryPosition, AMissingLoaderHoldsEverybodyUpAndIsNamed) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 3);
  group.readers[0].Start();
  group.loaders[0].Start();
  group.loaders[2].Start();
  EXPECT_THAT(group.loaders[0].box().lines, IsEmpty());
  EXPECT_THAT(group.View().streams.at(0).waiting_for, HasSubstr("loader 1"));
  group.loaders[1].Start();
  for (ScriptedLoader& loader : group.loaders) EXPECT_EQ(loader.box().positions.size(), 1u);
}

TEST(DeliveryPosition, IsTheFirstStepThatSomeReaderHasNotConsumed) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  StreamOf(group.readers[0].open).next_step = 12;
  StreamOf(group.readers[0].open).resume = OneLoader(11, "s11");
  StreamOf(group.readers[1].open).next_step = 10;
  StreamOf(group.readers[1].open).resume = OneLoader(9, "s9");
  group.Start();
  const Position& position = group.loaders[0].position();
  EXPECT_EQ(position.from_step, 10);
  EXPECT_EQ(position.state, (LoaderState{9, "s9"}));
  EXPECT_EQ(position.generation, 1);
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(10, 11, 12, 13));
}

TEST(DeliveryPosition, AServerThatRestartedSeedsItsStatesFromAReaderAtThePosition) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  // Both are at 7; one of them does not know the state.
  for (ScriptedReader& reader : group.readers) StreamOf(reader.open).next_step = 7;
  StreamOf(group.readers[1].open).resume = ResumeState{2, {{0, {6, "a6"}}, {1, {5, "b5"}}}};
  group.Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 8);
  EXPECT_EQ(group.loaders[0].position().state, (LoaderState{6, "a6"}));
  EXPECT_EQ(group.loaders[1].position().from_step, 7);
  EXPECT_EQ(group.loaders[1].position().state, (LoaderState{5, "b5"}));
  // The reader that lost it gets it back.
  const auto opened = group.readers[0].Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->streams.at(0).resume, StreamOf(group.readers[1].open).resume);
}

TEST(DeliveryPosition, WithoutAnyStateAPositionBehindTheBeginningFailsTheGeneration) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  StreamOf(group.readers[0].open).next_step = 7;
  group.Start();
  EXPECT_THAT(group.readers[0].Get(7), Optional(Refused(Code::kFailedPrecondition, "NO_STATE")));
  EXPECT_THAT(std::string(group.readers[0].box().answers.at(0).status.message()),
              HasSubstr("train/6"));
  EXPECT_THAT(group.loaders[0].box().positions, IsEmpty());
  EXPECT_EQ(world.alerts.size(), 1u);
  EXPECT_THAT(group.View().failure, HasSubstr("train/6"));
  // A new one with the state helps.
  group.readers[0].open.generation = 2;
  StreamOf(group.readers[0].open).resume = OneLoader(6, "s6");
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 7);
}

TEST(DeliveryPosition, TheLoadersOfACheckpointAreAsManyAsThoseThatAreThere) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  StreamOf(group.readers[0].open).next_step = 1;
  StreamOf(group.readers[0].open).resume = OneLoader(0, "s0");
  group.Start();
  const auto answer = group.readers[0].Get(1);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(*answer, Refused(Code::kFailedPrecondition, "LOADERS_DIFFER"));
  EXPECT_EQ(DetailsOf(*answer)->values.at("theirs"), "1");
  EXPECT_EQ(DetailsOf(*answer)->values.at("yours"), "2");
}

// --- keep or seek

// A group that has consumed steps 0 .. 3 of 0 .. 5; its window is [3, 7).
struct Consumed {
  explicit Consumed(int64_t cp_size = 1) : group(world, cp_size, 1) {
    group.Start();
    group.PushSteps(0, 4);
    group.Consume(0, 4);
    group.PushSteps(4, 6);
  }
  // The readers open generation 2 at `step`.
  void Reopen(int64_t step) {
    for (ScriptedReader& reader : group.readers) {
      reader.open.generation = 2;
      StreamOf(reader.open).next_step = step;
      StreamOf(reader.open).received = step - 1;
      StreamOf(reader.open).resume.reset();
      if (step > 0) StreamOf(reader.open).resume = OneLoader(step - 1, "reader");
    }
    for (ScriptedReader& reader : group.readers) reader.Start();
  }
  DeliveryWorld world;
  ScriptedGroup group;
};

TEST(DeliveryPosition, TheWindowIsKeptWhereThePositionLiesInIt) {
  for (const int64_t step : {3, 4, 6}) {
    Consumed scene;
    const int64_t epoch = scene.group.loaders[0].position().epoch;
    scene.Reopen(step);
    const Position& position = scene.group.loaders[0].position();
    EXPECT_EQ(position.generation, 2);
    EXPECT_EQ(position.epoch, epoch) << step;
    EXPECT_EQ(position.from_step, 6) << "what is there is not asked for again";
    if (step < 6) {
      EXPECT_THAT(scene.group.readers[0].Get(5), Optional(IsOkStatus())) << step;
    }
    EXPECT_EQ(scene.world.delivery.counters().seeks, 1) << "the first one";
  }
}

TEST(DeliveryPosition, OutsideTheWindowIsASeekForwardsOrBackwards) {
  for (const int64_t step : {0, 2, 7, 40}) {
    Consumed scene;
    const int64_t epoch = scene.group.loaders[0].position().epoch;
    scene.Reopen(step);
    const Position& position = scene.group.loaders[0].position();
    EXPECT_GT(position.epoch, epoch) << step;
    EXPECT_EQ(position.from_step, step);
    EXPECT_EQ(position.state.has_value(), step > 0);
    EXPECT_EQ(scene.world.delivery.counters().seeks, 2);
    EXPECT_FALSE(scene.group.readers[0].Get(step).has_value()) << "nothing is there yet";
    scene.group.PushSteps(step, step + 1);
    EXPECT_THAT(scene.group.readers[0].steps(), ElementsAre(step));
  }
}

TEST(DeliveryPosition, TheFloorNeverPassesAStepThatDidNotLandHere) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 4);
  group.Consume(0, 4);  // the window is [3, 7), nothing of 4 .. 6 is there
  ScriptedReader& reader = group.readers[0];
  reader.open.generation = 2;
  StreamOf(reader.open).next_step = 6;
  reader.Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 4);
  EXPECT_LE(group.View().streams.at(0).floor, 4);
  group.PushSteps(4, 7);
  EXPECT_EQ(group.View().streams.at(0).floor, 5);
  EXPECT_THAT(reader.Get(6), Optional(IsOkStatus()));
}

TEST(DeliveryPosition, PushesAndEndsOfAnotherEpochAreDroppedSilently) {
  Consumed scene;
  ScriptedLoader& loader = scene.group.loaders[0];
  const int64_t old = loader.position().epoch;
  const uint64_t landing = loader.Begin({.step = 6});
  ASSERT_NE(landing, 0u);
  scene.Reopen(0);
  const size_t acks = loader.box().acks.size();
  Item late;
  late.step = 1;
  late.epoch = old;
  EXPECT_EQ(loader.Push(late), std::nullopt);
  late.epoch = loader.position().epoch + 1;
  EXPECT_EQ(loader.Push(late), std::nullopt) << "one that is not there yet is no better";
  EXPECT_THAT(scene.world.delivery.End(loader.peer, {kTrain, 0, old, 2}, scene.world.now),
              IsOkStatus());
  loader.Finish(landing, {.step = 6});
  EXPECT_EQ(loader.box().acks.size(), acks) << "nothing was said";
  scene.group.PushSteps(0, 4);
  EXPECT_THAT(scene.group.readers[0].Get(2), Optional(IsOkStatus())) << "no end is known";
}

TEST(DeliveryPosition, ASeekTakesBackCreditsAndGivesNewOnes) {
  Consumed scene;
  ScriptedLoader& loader = scene.group.loaders[0];
  const size_t before = loader.box().credits.size();
  scene.Reopen(20);
  const auto& credits = loader.box().credits;
  ASSERT_EQ(credits.size(), before + 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(credits[before + i].at.step, 20 + static_cast<int64_t>(i));
    EXPECT_EQ(credits[before + i].epoch, loader.position().epoch);
  }
  Item old;
  old.step = 6;
  EXPECT_THAT(loader.Push(old), Optional(IsOkStatus())) << "below the floor: taken as there";
}

TEST(DeliveryPosition, AnotherDataSetIsNotServedFromTheWindow) {
  Consumed scene;
  for (ScriptedReader& reader : scene.group.readers) reader.open.fingerprint = "new data";
  const int64_t epoch = scene.group.loaders[0].position().epoch;
  scene.Reopen(4);
  EXPECT_GT(scene.group.loaders[0].position().epoch, epoch);
  EXPECT_EQ(scene.group.loaders[0].position().from_step, 4);
  EXPECT_EQ(scene.group.loaders[0].position().state, (LoaderState{3, "reader"}));
  EXPECT_FALSE(scene.group.readers[0].Get(4).has_value());
}

TEST(DeliveryPosition, AnotherNumberOfRanksIsServedFromTheSameBatches) {
  Consumed scene;
  const auto payload = [](const ScriptedReader& reader) {
    return reader.box().shards.at(0).payload;
  };
  ASSERT_THAT(scene.group.readers[0].Get(4), Optional(IsOkStatus()));
  const auto before = scene.group.readers[0].box().shards.back().payload;
  std::deque<ScriptedReader> readers;
  for (int64_t rank = 0; rank < 3; ++rank) {
    OpenSession open = OpenOf(rank, 3);
    open.generation = 2;
    open.options = "options for three";
    StreamOf(open).next_step = 4;
    StreamOf(open).received = 3;
    readers.emplace_back(scene.world, open).Start();
  }
  for (int64_t rank = 0; rank < 3; ++rank) {
    ASSERT_THAT(readers[rank].Get(4), Optional(IsOkStatus()));
    const DeliverShard& shard = readers[rank].box().shards.at(0);
    EXPECT_EQ(payload(readers[rank]), before) << "the batch did not come again";
    EXPECT_EQ(shard.cp_rank, rank);
    EXPECT_EQ(shard.terms->cp_size, 3);
    EXPECT_EQ(shard.terms->options, "options for three");
    EXPECT_EQ(shard.terms->generation, 2);
  }
  EXPECT_EQ(scene.world.delivery.counters().seeks, 1);
}

TEST(DeliveryPosition, AnotherNumberOfLoadersIsRefusedAsLongAsTheDataStreamGoesOn) {
  Consumed scene;
  scene.group.loaders[0].Disconnect();
  ScriptedLoader other(scene.world, HelloOf(0, 2));
  EXPECT_THAT(other.Hello(), Refused(Code::kFailedPrecondition, "LOADERS_DIFFER"));
  scene.group.loaders[0].Start();
  scene.Reopen(4);
  EXPECT_THAT(other.Hello(), Refused(Code::kFailedPrecondition, "LOADERS_DIFFER"));
  scene.group.PushSteps(6, 7);
  scene.group.Consume(4, 7);
}

TEST(DeliveryPosition, TheNextRunMayHaveAnotherNumberOfLoaders) {
  for (const bool closed : {true, false}) {
    Consumed scene;
    if (closed) scene.group.readers[0].Close();
    scene.group.readers[0].Disconnect();
    scene.group.loaders[0].Disconnect();
    ScriptedGroup next(scene.world, 1, 3);
    next.readers[0].open.generation = 2;
    next.Start();
    next.PushSteps(0, 3);
    next.Consume(0, 3);
  }
}

TEST(DeliveryPosition, ANewGenerationWaitsForLoadersThatAreAway) {
  Consumed scene;
  scene.group.loaders[0].Disconnect();
  scene.Reopen(4);
  EXPECT_EQ(scene.group.View().streams.at(0).floor, std::nullopt);
  EXPECT_THAT(scene.group.View().streams.at(0).waiting_for, HasSubstr("loader 0"));
  scene.group.loaders[0].Start();
  EXPECT_EQ(scene.group.loaders[0].position().from_step, 6) << "the window was kept";
  scene.group.Consume(4, 6);
}

TEST(DeliveryPosition, OtherLoadersTakeOverNothingOfTheWindow) {
  Consumed scene(2);
  scene.group.loaders[0].Disconnect();
  for (ScriptedReader& reader : scene.group.readers) {
    reader.open.generation = 2;
    StreamOf(reader.open).next_step = 4;
    StreamOf(reader.open).received = 3;
  }
  scene.group.readers[0].Start();
  std::deque<ScriptedLoader> loaders;
  for (int64_t i = 0; i < 2; ++i) loaders.emplace_back(scene.world, HelloOf(i, 2)).Start();
  StreamOf(scene.group.readers[1].open).resume = ResumeState{2, {{0, {2, "a"}}, {1, {3, "b"}}}};
  scene.group.readers[1].Start();
  EXPECT_EQ(loaders[0].position().from_step, 4) << "steps 4 and 5 were those of one loader";
  EXPECT_EQ(loaders[0].position().state, (LoaderState{2, "a"}));
  EXPECT_EQ(loaders[1].position().from_step, 5);
  EXPECT_EQ(loaders[1].position().state, (LoaderState{3, "b"}));
}

TEST(DeliveryPosition, AGenerationMayRaiseTheSizeOfAStepAndKeepTheWindow) {
  Consumed scene;
  for (ScriptedReader& reader : scene.group.readers) {
    StreamOf(reader.open).max_step_bytes = 2 * kStepBytes;
  }
  ScriptedLoader& loader = scene.group.loaders[0];
  scene.Reopen(4);
  ASSERT_EQ(loader.box().credits.back().bytes, 2 * kStepBytes);
  Item large;
  large.step = 6;  // its first credit was for half of it
  large.bytes = 2 * kStepBytes;
  EXPECT_THAT(loader.Push(large), Optional(IsOkStatus()));
  EXPECT_THAT(scene.group.readers[0].Get(5), Optional(IsOkStatus()));
  EXPECT_THAT(scene.group.readers[0].Get(6), Optional(IsOkStatus()));
}

TEST(DeliveryPosition, DigestsOfAnotherEpochMayChangeAndAreCounted) {
  Consumed scene;
  scene.Reopen(0);
  ScriptedLoader& loader = scene.group.loaders[0];
  Item other;
  other.digest = 4711;
  EXPECT_THAT(loader.Push(other), Optional(IsOkStatus()));
  EXPECT_THAT(loader.Push({.step = 1}), Optional(IsOkStatus()));
  EXPECT_EQ(scene.world.delivery.counters().digest_changes, 1);
  EXPECT_EQ(scene.world.delivery.counters().digest_conflicts, 0);
  EXPECT_THAT(scene.group.readers[0].Get(0), Optional(IsOkStatus()));
}

TEST(DeliveryPosition, AReaderIsNotToldTheStateThatItBrings) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ASSERT_THAT(group.loaders[0].Push({.step = 0, .state = "s0"}), Optional(IsOkStatus()));
  group.Consume(0, 1);
  ScriptedReader& reader = group.readers[0];
  StreamOf(reader.open).next_step = 1;
  EXPECT_EQ(reader.Open()->streams.at(0).resume, OneLoader(0, "s0"));
  StreamOf(reader.open).resume = OneLoader(0, "s0");
  EXPECT_EQ(reader.Open()->streams.at(0).resume, std::nullopt);
}

TEST(DeliveryPosition, DigestsThatChangeAreANoticeOncePerEpoch) {
  Consumed scene;
  scene.Reopen(0);
  ScriptedLoader& loader = scene.group.loaders[0];
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_THAT(loader.Push({.step = step, .digest = 4711}), Optional(IsOkStatus()));
  }
  ASSERT_EQ(scene.world.alerts.size(), 1u);
  EXPECT_EQ(scene.world.alerts[0].code, "DIGEST_CHANGED");
  EXPECT_TRUE(scene.world.alerts[0].is_notice);
  EXPECT_THAT(scene.world.alerts[0].text, HasSubstr("train/0"));
  EXPECT_THAT(scene.world.alerts[0].text, HasSubstr("4711"));
  const DataStreamView view = scene.group.View().streams[0];
  EXPECT_EQ(view.digest_changes, 3);
  EXPECT_THAT(view.notice, HasSubstr("train/2")) << "the last one";
}

// --- the resume state

TEST(DeliveryPosition, TheResumeStateIsTheLatestByStepNotByArrival) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  const auto item = [](int64_t step) {
    Item item;
    item.step = step;
    item.state = "s" + std::to_string(step);
    return item;
  };
  for (const int64_t step : {2, 0, 3, 1}) {
    ASSERT_THAT(group.loaders[0].Push(item(step)), Optional(IsOkStatus()));
  }
  for (int64_t next = 1; next <= 4; ++next) {
    StreamOf(group.readers[0].open).next_step = next - 1;
    group.readers[0].Start();
    for (int64_t step = next - 1; step < next; ++step) {
      ASSERT_THAT(group.readers[0].Get(step), Optional(IsOkStatus()));
    }
    EXPECT_EQ(group.readers[0].box().shards.back().head.owner_state,
              "s" + std::to_string(next - 1));
    StreamOf(group.readers[0].open).next_step = next;
    StreamOf(group.readers[0].open).received = next - 1;
    const auto opened = group.readers[0].Open();
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->streams.at(0).resume, OneLoader(next - 1, "s" + std::to_string(next - 1)));
  }
}

TEST(DeliveryPosition, TheResumeStateHasTheLatestOfEveryLoaderAtOrBeforeTheStep) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.Start();
  const auto push = [&](int64_t step) {
    Item item;
    item.step = step;
    item.state = "s" + std::to_string(step);
    EXPECT_THAT(group.loaders[step % 2].Push(item), Optional(IsOkStatus()));
  };
  for (int64_t step = 0; step < 4; ++step) push(step);
  group.Consume(0, 3);
  push(4);
  StreamOf(group.readers[0].open).next_step = 3;
  StreamOf(group.readers[0].open).received = 2;
  const auto opened = group.readers[0].Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->streams.at(0).resume, (ResumeState{2, {{0, {2, "s2"}}, {1, {1, "s1"}}}}));
  // The loader of the odd steps comes back: its latest below what is missing.
  group.loaders[1].Start();
  EXPECT_EQ(group.loaders[1].position().from_step, 5);
  EXPECT_EQ(group.loaders[1].position().state, (LoaderState{3, "s3"}));
}

TEST(DeliveryPosition, TheStateOfTheOwnerComesWithTheLastMicrobatchOnly) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  Item first;
  first.last = false;
  Item second;
  second.microbatch = 1;
  second.state = "behind 0";
  ASSERT_THAT(group.loaders[0].Push(first), Optional(IsOkStatus()));
  ASSERT_THAT(group.loaders[0].Push(second), Optional(IsOkStatus()));
  ASSERT_THAT(group.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(group.readers[0].box().shards.at(0).head.owner_state, std::nullopt);
  EXPECT_EQ(group.readers[0].box().shards.at(1).head.owner_state, "behind 0");
  EXPECT_EQ(group.readers[0].box().shards.at(1).head.owner, 0);
  EXPECT_EQ(group.readers[0].box().shards.at(1).head.num_loaders, 1);
}

}  // namespace
}  // namespace cpshard
