// Loaders: seats, what they are told, credits, and what a crash costs.
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

TEST(DeliveryLoaders, AHelloForAGroupThatNobodyHasOpenedIsParked) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  EXPECT_THAT(group.loaders[0].Hello(), IsOkStatus());
  EXPECT_THAT(group.loaders[0].box().lines, IsEmpty());
  EXPECT_FALSE(group.View().opened);
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 0);
}

TEST(DeliveryLoaders, AParkedGroupIsForgottenWithItsLoaders) {
  DeliveryWorld world;  // four groups at most
  for (int i = 0; i < 12; ++i) {
    ScriptedLoader lost(world, HelloOf(0, 1));
    lost.hello.group = "mistyped " + std::to_string(i);
    ASSERT_THAT(lost.Hello(), IsOkStatus()) << i;
    lost.Disconnect();
  }
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 1);
  group.Consume(0, 1);
}

TEST(DeliveryLoaders, ParkedGroupsAreBounded) {
  DeliveryWorld world;
  std::deque<ScriptedLoader> loaders;
  for (int64_t i = 0; i < world.options.max_groups; ++i) {
    loaders.emplace_back(world, HelloOf(0, 1)).hello.group = "h" + std::to_string(i);
    ASSERT_THAT(loaders.back().Hello(), IsOkStatus());
  }
  ScriptedLoader more(world, HelloOf(0, 1));
  const absl::Status refused = more.Hello();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("group g"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("4"));
}

TEST(DeliveryLoaders, EveryDataStreamHasItsOwnNumberOfLoaders) {
  DeliveryWorld world;
  ScriptedReader reader(world, OpenOf(0, 1, {kTrain, kVal}));
  std::deque<ScriptedLoader> train;
  for (int64_t i = 0; i < 3; ++i) train.emplace_back(world, HelloOf(i, 3));
  ScriptedLoader val(world, HelloOf(0, 1, {kVal}));
  reader.Start();
  for (ScriptedLoader& loader : train) loader.Start();
  EXPECT_EQ(train[2].position().from_step, 2) << "it does not wait for val";
  val.Start();
  EXPECT_THAT(val.credits(kVal), ElementsAre(0, 1, 2, 3));
  ScriptedLoader other(world, HelloOf(0, 2));
  const absl::Status refused = other.Hello();
  EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "LOADERS_DIFFER"));
  EXPECT_EQ(DetailsOf(refused)->values.at("yours"), "2");
  EXPECT_EQ(DetailsOf(refused)->values.at("theirs"), "3");
}

TEST(DeliveryLoaders, TheLastConnectionOfALoaderWins) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1, {kTrain, kVal});
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  ScriptedLoader old = loader;
  loader.Start();
  ASSERT_EQ(world.BoxOf(old.peer).ends.size(), 1u);
  EXPECT_EQ(world.BoxOf(old.peer).ends[0].code(), Code::kAborted);
  EXPECT_THAT(loader.credits(), ElementsAre(0, 1, 2, 3)) << "repeated";
  old.Disconnect();
  EXPECT_TRUE(group.View().streams.at(0).loaders.at(0).connected);
}

TEST(DeliveryLoaders, WhatComesOnAReplacedConnectionIsDropped) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader old = group.loaders[0];
  ScriptedLoader& young = group.loaders[0];
  young.hello.incarnation = 2;
  young.Start();
  // It was frozen with all of it in flight.
  Item item;
  item.digest = 99;
  EXPECT_EQ(old.Begin(item), 0u);
  EXPECT_THAT(old.End(1), IsOkStatus()) << "to nobody";
  EXPECT_THAT(young.Push({.step = 0}), Optional(IsOkStatus()));
  EXPECT_EQ(old.Begin(item), 0u);
  EXPECT_THAT(young.End(3), IsOkStatus());
  EXPECT_THAT(group.readers[0].Get(0), Optional(IsOkStatus())) << "the generation has not failed";
  EXPECT_THAT(world.alerts, IsEmpty());
}

TEST(DeliveryLoaders, ALowerIncarnationOfALoaderStaysOut) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].hello.incarnation = 3;
  group.Start();
  ScriptedLoader old(world, group.loaders[0].hello);
  old.hello.incarnation = 2;
  const absl::Status refused = old.Hello();
  EXPECT_THAT(refused, Refused(Code::kAborted, "STALE_INCARNATION"));
  EXPECT_EQ(DetailsOf(refused)->values.at("incarnation"), "3");
  EXPECT_THAT(group.loaders[0].box().ends, IsEmpty());
  EXPECT_THAT(group.loaders[0].Push({.step = 0}), Optional(IsOkStatus()));
}

TEST(DeliveryLoaders, ALoaderSpeaksOnlyForDataStreamsOfItsHello) {
  DeliveryWorld world;
  ScriptedReader reader(world, OpenOf(0, 1, {kTrain, kVal}));
  std::deque<ScriptedLoader> train;
  for (int64_t i = 0; i < 4; ++i) train.emplace_back(world, HelloOf(i, 4));
  ScriptedLoader val(world, HelloOf(0, 1, {kVal}));
  reader.Start();
  for (ScriptedLoader& loader : train) loader.Start();
  val.Start();
  Item item;
  item.step = 3;
  item.stream = kVal;
  item.pass = 0;
  item.epoch = val.position(kVal).epoch;
  EXPECT_EQ(train[3].Begin(item), 0u);
  EXPECT_EQ(train[0].Begin(item), 0u);
  (void)world.delivery.End(train[3].peer, {kVal, 0, *item.epoch, 2}, world.now);
  (void)world.delivery.End(train[0].peer, {kVal, 0, *item.epoch, 2}, world.now);
  world.Deliver();
  EXPECT_THAT(val.End(3, kVal), IsOkStatus()) << "nobody else has said anything";
  val.PushSteps(0, 3, kVal);
  EXPECT_THAT(reader.Get(2, kVal), Optional(IsOkStatus()));
  EXPECT_THAT(reader.Get(3, kVal), Optional(Refused(Code::kOutOfRange, "END_OF_STREAM")));
}

// --- credits

TEST(DeliveryLoaders, CreditsAreGivenInStepOrderUpToTheEndOfTheWindow) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(0, 1, 2, 3));
  for (const LoaderCredit& credit : group.loaders[0].box().credits) {
    EXPECT_EQ(credit.bytes, kStepBytes);
    EXPECT_EQ(credit.epoch, group.loaders[0].position().epoch);
  }
  group.PushSteps(0, 4);
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(0, 1, 2, 3)) << "nothing was consumed";
  group.Consume(0, 1);
  EXPECT_EQ(group.loaders[0].credits().back(), 3) << "step 0 is kept for a replay";
  group.Consume(1, 2);
  EXPECT_EQ(group.loaders[0].credits().back(), 4);
}

TEST(DeliveryLoaders, CreditsAreHeldForAnOwnerThatIsAwayAndRepeatedWhenItIsBack) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.Start();
  group.PushSteps(0, 1);
  group.loaders[1].Disconnect();
  group.loaders[0].PushSteps(2, 3);
  group.Consume(0, 1);
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(0, 2))
      << "4 is beyond the window, whoever is away";
  group.loaders[1].Start();
  const Position& position = group.loaders[1].position();
  EXPECT_EQ(position.from_step, 1);
  EXPECT_THAT(position.landed, IsEmpty());
  EXPECT_THAT(group.loaders[1].credits(), ElementsAre(1, 3));
  group.PushSteps(3, 4);
  group.loaders[1].PushSteps(1, 2);
  group.Consume(1, 4);
}

TEST(DeliveryLoaders, APositionNamesTheMicrobatchesThatAreThere) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  group.PushSteps(0, 1);
  for (const int64_t microbatch : {0, 2}) {
    Item item{.step = 1, .microbatch = microbatch, .last = false, .bytes = 20};
    ASSERT_THAT(loader.Push(item), Optional(IsOkStatus()));
  }
  loader.Disconnect();
  loader.Start();  // the same process
  EXPECT_EQ(loader.position().from_step, 1);
  EXPECT_THAT(loader.position().landed, ElementsAre(0, 2));
  ASSERT_THAT(loader.Push({.step = 1, .microbatch = 1, .last = false, .bytes = 20}),
              Optional(IsOkStatus()));
  ASSERT_THAT(loader.Push({.step = 1, .microbatch = 3, .bytes = 20}), Optional(IsOkStatus()));
  ASSERT_THAT(group.readers[0].Get(1), Optional(IsOkStatus()));
  EXPECT_EQ(group.readers[0].box().shards.size(), 4u);
}

TEST(DeliveryLoaders, ReleasedFollowsTheSlowestReaderAndNotDelivery) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.Start();
  group.PushSteps(0, 4);
  for (int64_t step = 0; step < 3; ++step) {
    for (ScriptedReader& reader : group.readers) {
      ASSERT_THAT(reader.Get(step), Optional(IsOkStatus()));
    }
  }
  EXPECT_THAT(group.loaders[0].box().released, IsEmpty()) << "delivered is not consumed";
  ASSERT_THAT(group.readers[0].Commit(2), IsOkStatus());
  EXPECT_THAT(group.loaders[0].box().released, IsEmpty()) << "the other rank may still ask";
  ASSERT_THAT(group.readers[1].Commit(1), IsOkStatus());
  for (ScriptedLoader& loader : group.loaders) {
    ASSERT_EQ(loader.box().released.size(), 1u);
    EXPECT_EQ(loader.box().released[0].before, 1) << "step 1 is kept for a replay";
    EXPECT_EQ(loader.box().released[0].stream, kTrain);
    EXPECT_EQ(loader.box().released[0].epoch, loader.position().epoch);
  }
  group.loaders[1].Start();
  EXPECT_EQ(group.loaders[1].position().released, 1);
}

// --- crashes

TEST(DeliveryLoaders, ACrashDropsUndeliveredMicrobatchesOfIncompleteStepsOnly) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.Start();
  ScriptedLoader& even = group.loaders[0];
  ScriptedLoader& odd = group.loaders[1];
  ASSERT_THAT(even.Push({.step = 0, .microbatch = 0, .last = false}), Optional(IsOkStatus()));
  ASSERT_THAT(odd.Push({.step = 1, .microbatch = 0, .last = false}), Optional(IsOkStatus()));
  ASSERT_THAT(even.Push({.step = 2}), Optional(IsOkStatus()));
  even.Disconnect();
  even.hello.incarnation = 2;
  even.Start();
  EXPECT_EQ(even.position().from_step, 0);
  EXPECT_THAT(even.position().landed, IsEmpty());
  EXPECT_THAT(even.credits(), ElementsAre(0)) << "2 is complete";
  odd.Start();
  EXPECT_THAT(odd.position().landed, ElementsAre(0)) << "not its crash";
  EXPECT_THAT(even.Push({.step = 0, .microbatch = 0, .last = false}), Optional(IsOkStatus()));
  EXPECT_THAT(even.Push({.step = 0, .microbatch = 1}), Optional(IsOkStatus()));
  EXPECT_THAT(odd.Push({.step = 1, .microbatch = 1}), Optional(IsOkStatus()));
  group.Consume(0, 3);
}

TEST(DeliveryLoaders, ANewConnectionOfTheSameProcessLosesNothing) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  ASSERT_THAT(loader.Push({.step = 0, .microbatch = 0, .last = false}), Optional(IsOkStatus()));
  loader.Start();
  EXPECT_THAT(loader.position().landed, ElementsAre(0));
}

TEST(DeliveryLoaders, AMicrobatchThatWasDeliveredEarlyStaysAndHoldsTheNewProcess) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  Item first{.step = 0, .microbatch = 0, .last = false};
  first.totals = StepTotals{3, 21, 27};
  ASSERT_THAT(loader.Push(first), Optional(IsOkStatus()));
  ASSERT_THAT(loader.Push({.step = 0, .microbatch = 2, .bytes = 20}), Optional(IsOkStatus()));
  const uint64_t asked = group.readers[0].Ask(0);
  ASSERT_EQ(group.readers[0].box().shards.size(), 1u);
  loader.Disconnect();
  loader.hello.incarnation = 2;
  loader.Start();
  EXPECT_THAT(loader.position().landed, IsEmpty()) << "0 comes again, to be compared; 2 is gone";
  EXPECT_THAT(loader.Push(first), Optional(IsOkStatus())) << "the same once more";
  EXPECT_THAT(loader.Push({.step = 0, .microbatch = 1, .last = false, .bytes = 20}),
              Optional(IsOkStatus()));
  EXPECT_THAT(loader.Push({.step = 0, .microbatch = 2, .bytes = 20}), Optional(IsOkStatus()));
  EXPECT_THAT(group.readers[0].AnswerTo(asked), Optional(IsOkStatus()));
  EXPECT_EQ(group.readers[0].box().shards.size(), 3u) << "each once";
}

TEST(DeliveryLoaders, APushThatIsCutOffIsVoidAndItsStepIsAskedForAgain) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  const uint64_t landing = loader.Begin({.step = 0});
  ASSERT_NE(landing, 0u);
  ScriptedLoader old = loader;
  old.Disconnect();
  loader.hello.incarnation = 2;
  loader.Start();
  // Its bytes are still in use: the new process has to wait, and is told when.
  const auto early = loader.Push({.step = 0});
  if (early) {
    EXPECT_EQ(early->code(), Code::kResourceExhausted) << *early;
    ASSERT_TRUE(DetailsOf(*early).has_value());
    EXPECT_TRUE(DetailsOf(*early)->retry_after.has_value());
  }
  const size_t credits = loader.credits().size();
  old.Finish(landing, {.step = 0});
  EXPECT_FALSE(group.readers[0].Get(0).has_value()) << "half of a process that is gone";
  EXPECT_GT(loader.credits().size(), credits);
  EXPECT_EQ(loader.credits().back(), 0);
  EXPECT_THAT(loader.Push({.step = 0}), Optional(IsOkStatus()));
  EXPECT_THAT(group.readers[0].steps(), ElementsAre(0));
}

TEST(DeliveryLoaders, ADataLossIsPushedAgain) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  Item item;
  item.digest = 5;
  const uint64_t landing = loader.Begin(item);
  item.digest = 6;  // of what landed
  loader.Finish(landing, item);
  ASSERT_TRUE(loader.last_ack().has_value());
  EXPECT_EQ(loader.last_ack()->code(), Code::kDataLoss);
  EXPECT_THAT(std::string(loader.last_ack()->message()), HasSubstr("train/0"));
  EXPECT_EQ(loader.credits().back(), 0) << "its step is credited again";
  EXPECT_FALSE(group.readers[0].Get(0).has_value());
  item.digest = 5;
  EXPECT_THAT(loader.Push(item), Optional(IsOkStatus())) << "what was damaged is not held to";
  EXPECT_THAT(group.readers[0].steps(), ElementsAre(0));
}

TEST(DeliveryLoaders, ABatchThatWasRefusedLeavesNothingOfItsStep) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  // It does not fit the layout, wherever the loader cuts it.
  Item wrong;
  wrong.microbatch = 2;
  wrong.totals.reset();
  loader.Break(loader.Begin(wrong), absl::InvalidArgumentError("row 0 does not fit"));
  EXPECT_THAT(loader.last_ack(),
              Optional(testing::Property(&absl::Status::code, Code::kInvalidArgument)));
  EXPECT_THAT(loader.Push({.step = 0, .microbatch = 0}), Optional(IsOkStatus()))
      << "now the step has one microbatch";
  EXPECT_THAT(group.readers[0].Get(0), Optional(IsOkStatus()));
}

TEST(DeliveryLoaders, APushOfALoaderThatDoesNotExistAnyMoreIsVoid) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 4);
  group.Start();
  ScriptedLoader& last = group.loaders[3];
  const uint64_t landing = last.Begin({.step = 3});
  ASSERT_NE(landing, 0u);
  for (ScriptedLoader& loader : group.loaders) loader.Disconnect();
  for (ScriptedReader& reader : group.readers) reader.open.generation = 2;
  group.readers[0].Start();
  // While the new generation gathers: one loader in place of four.
  ScriptedLoader alone(world, HelloOf(0, 1));
  alone.Start();
  last.Finish(landing, {.step = 3});
  group.readers[1].Start();
  EXPECT_EQ(alone.position().from_step, 0);
  alone.PushSteps(0, 4);
  group.Consume(0, 4);
}

TEST(DeliveryLoaders, ANewProcessMayCutAStepInFewerPartsWhereNoneWasDelivered) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  ASSERT_THAT(loader.Push({.step = 0, .microbatch = 2, .bytes = 20}), Optional(IsOkStatus()));
  loader.hello.incarnation = 2;
  loader.Start();
  EXPECT_THAT(loader.Push({.step = 0, .microbatch = 0}), Optional(IsOkStatus()));
  EXPECT_THAT(group.readers[0].Get(0), Optional(IsOkStatus()));
}

TEST(DeliveryLoaders, ParkedGroupsKeepNobodyFromOpeningOne) {
  DeliveryWorld world;
  std::deque<ScriptedLoader> loaders;
  for (int64_t i = 0; i < world.options.max_groups; ++i) {
    loaders.emplace_back(world, HelloOf(0, 1)).hello.group = "h" + std::to_string(i);
    ASSERT_THAT(loaders.back().Hello(), IsOkStatus());
  }
  std::deque<ScriptedReader> readers;
  for (int64_t i = 0; i < world.options.max_groups; ++i) {
    readers.emplace_back(world, OpenOf(0, 1)).open.group = "g" + std::to_string(i);
    ASSERT_TRUE(readers.back().Open().ok()) << i;
  }
  ScriptedReader more(world, OpenOf(0, 1));
  EXPECT_EQ(more.Open().status().code(), Code::kResourceExhausted);
  more.open.group = "h0";
  EXPECT_EQ(more.Open().status().code(), Code::kResourceExhausted)
      << "one that is parked counts once it is opened";
}

TEST(DeliveryLoaders, AMistakenGenerationIsForgottenWithTheProcessThatBroughtIt) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedLoader& loader = group.loaders[0];
  loader.hello.generation_seen = 1'000'000;
  loader.Start();
  EXPECT_THAT(group.readers[0].Open().status(), Refused(Code::kAborted, "STALE_GENERATION"));
  loader.hello.generation_seen = 0;
  loader.hello.incarnation = 2;
  loader.Start();
  group.readers[0].Start();
  group.PushSteps(0, 2);
  group.Consume(0, 2);
}

TEST(DeliveryLoaders, AMistakenGenerationIsForgottenWhenItsLoaderDoesNotComeBack) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1, {kTrain});
  group.Start();
  ScriptedLoader mistaken(world, HelloOf(0, 1, {kVal}));
  mistaken.hello.generation_seen = 7;
  mistaken.Start();
  mistaken.Disconnect();
  EXPECT_THAT(group.readers[0].Open().status(), Refused(Code::kAborted, "STALE_GENERATION"))
      << "it may have lost its connection alone";
  world.Pass(world.options.rank_timeout + absl::Seconds(1));
  group.readers[0].Start();
  group.PushSteps(0, 1);
  group.Consume(0, 1);
}

}  // namespace
}  // namespace cpshard
