// What an operator sees: who is there, how far everybody is, who waits for whom.
#include <gtest/gtest.h>

#include "tests/server/session/delivery_peers.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(DeliveryView, ShowsHowFarEverybodyIs) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.Start();
  group.PushSteps(0, 3);
  group.Consume(0, 1);
  ASSERT_THAT(group.readers[1].Get(1), Optional(IsOkStatus()));
  group.readers[1].Ask(3);
  group.loaders[1].Disconnect();
  group.readers[0].Disconnect();
  world.Pass(absl::Seconds(7));

  const GroupView view = group.View();
  EXPECT_EQ(view.group, "g");
  EXPECT_EQ(view.generation, 1);
  EXPECT_EQ(view.cp_size, 2);
  EXPECT_TRUE(view.opened);
  EXPECT_FALSE(view.ended);
  EXPECT_THAT(view.failure, IsEmpty());
  ASSERT_EQ(view.readers.size(), 2u);
  EXPECT_EQ(view.readers[0].reader, "r0");
  EXPECT_FALSE(view.readers[0].connected);
  EXPECT_EQ(view.readers[0].away_seconds, 7);
  EXPECT_TRUE(view.readers[1].connected);
  EXPECT_EQ(view.readers[1].away_seconds, std::nullopt);
  EXPECT_EQ(view.readers[1].wants, 1);
  ASSERT_EQ(view.readers[1].streams.size(), 1u);
  EXPECT_EQ(view.readers[1].streams[0].next_step, 1);
  EXPECT_EQ(view.readers[1].streams[0].delivered, 1);
  ASSERT_EQ(view.streams.size(), 1u);
  const DataStreamView& stream = view.streams[0];
  EXPECT_EQ(stream.stream, kTrain);
  EXPECT_EQ(stream.floor, 0);
  EXPECT_EQ(stream.frontier, 3);
  EXPECT_EQ(stream.end_step, std::nullopt);
  EXPECT_EQ(stream.window_steps, 4);
  EXPECT_EQ(stream.complete_steps, 3);
  EXPECT_EQ(stream.used_bytes, 3 * 40 + kStepBytes);
  EXPECT_EQ(stream.guaranteed_bytes, 3 * kStepBytes);
  EXPECT_EQ(stream.max_step_bytes, kStepBytes);
  ASSERT_EQ(stream.loaders.size(), 2u);
  EXPECT_TRUE(stream.loaders[0].connected);
  EXPECT_EQ(stream.loaders[0].next_step, 4);
  EXPECT_EQ(stream.loaders[0].silent_seconds, 7);
  EXPECT_TRUE(stream.loaders[1].known);
  EXPECT_FALSE(stream.loaders[1].connected);
  EXPECT_EQ(stream.loaders[1].next_step, 3);
  EXPECT_THAT(stream.waiting_for, HasSubstr("train/3 from loader 1"));
}

TEST(DeliveryView, ShowsAGroupThatOnlyLoadersHaveNamed) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.loaders[1].Start();
  const GroupView view = group.View();
  EXPECT_FALSE(view.opened);
  EXPECT_EQ(view.generation, 0);
  ASSERT_EQ(view.streams.size(), 1u);
  EXPECT_EQ(view.streams[0].num_loaders, 2);
  EXPECT_FALSE(view.streams[0].loaders.at(0).known);
  EXPECT_TRUE(view.streams[0].loaders.at(1).connected);
}

TEST(DeliveryView, ListsAllGroupsByName) {
  DeliveryWorld world;
  ScriptedGroup h(world, 1, 1, {kTrain}, "h"), g(world, 1, 1);
  h.Start();
  g.Start();
  const auto views = world.delivery.Views(world.now);
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].group, "g");
  EXPECT_EQ(views[1].group, "h");
}

TEST(DeliveryView, WaitsForNobodyAtTheEnd) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 2);
  ASSERT_THAT(group.loaders[0].End(2), IsOkStatus());
  EXPECT_THAT(group.View().streams.at(0).waiting_for, IsEmpty());
  EXPECT_EQ(group.View().streams.at(0).end_step, 2);
}

TEST(DeliveryView, CountersCountBatchesAndThoseWhoAreConnected) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.Start();
  DeliveryCounters counters = world.delivery.counters();
  EXPECT_EQ(counters.sessions, 2);
  EXPECT_EQ(counters.loaders, 2);
  EXPECT_EQ(counters.generations, 1);
  EXPECT_EQ(counters.seeks, 1);
  EXPECT_EQ(counters.used_bytes, 4 * kStepBytes);
  group.PushSteps(0, 2);
  group.Consume(0, 2);
  ASSERT_THAT(group.loaders[0].Push({.step = 0}), Optional(IsOkStatus()));
  ASSERT_FALSE(group.loaders[0].Push({.step = 1})->ok());
  counters = world.delivery.counters();
  EXPECT_EQ(counters.pushed, 2);
  EXPECT_EQ(counters.delivered, 4);
  EXPECT_EQ(counters.duplicates, 1);
  EXPECT_EQ(counters.refused, 1);
  EXPECT_EQ(counters.most_used_bytes, 4 * kStepBytes);
  group.readers[0].Disconnect();
  group.loaders[0].Disconnect();
  EXPECT_EQ(world.delivery.counters().sessions, 1);
  EXPECT_EQ(world.delivery.counters().loaders, 1);
}

TEST(DeliveryView, ABatchIsLetGoWhenNothingNeedsIt) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 1);
  ASSERT_THAT(group.readers[0].Get(0), Optional(IsOkStatus()));
  const std::weak_ptr<const Payload> batch = group.readers[0].box().shards.at(0).payload;
  group.readers[0].box().shards.clear();
  group.PushSteps(1, 3);
  EXPECT_FALSE(batch.expired()) << "it can be asked for again";
  ASSERT_THAT(group.readers[0].Get(1), Optional(IsOkStatus()));
  ASSERT_THAT(group.readers[0].Commit(1), IsOkStatus());
  world.delivery.Sent(group.readers[0].peer, {kTrain, 0, 0}, 0, world.now);
  EXPECT_TRUE(batch.expired());
}

}  // namespace
}  // namespace cpshard
