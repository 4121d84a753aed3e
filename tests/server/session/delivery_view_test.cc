// What an operator sees: who is there, how far everybody is, who waits for whom.
#include <gtest/gtest.h>

#include "proto/error_details.h"
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

TEST(DeliveryView, ShowsWhatTrainersHaveWaitedAsTheirCommitsSay) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 3);
  ScriptedReader& reader = group.readers[0];
  EXPECT_EQ(group.View().readers[0].elapsed_us, 0);
  const auto commit = [&](int64_t step, std::optional<StallTime> stall, int64_t elapsed_us) {
    ASSERT_THAT(reader.Get(step), Optional(IsOkStatus()));
    ASSERT_THAT(
        world.delivery.Commit(reader.peer, Commit{{kTrain, 0, step}, stall, elapsed_us}, world.now),
        IsOkStatus());
  };
  commit(0, StallTime{1, 20, 300, 4000}, 50'000);
  commit(1, std::nullopt, 0);
  commit(2, StallTime{5, 0, 0, 1}, 7);
  EXPECT_EQ(group.View().readers[0].stall, (StallTime{6, 20, 300, 4001}));
  EXPECT_EQ(group.View().readers[0].elapsed_us, 50'007);
  // It is a process' own.
  reader.open.incarnation = 2;
  StreamOf(reader.open).next_step = 3;
  reader.Start();
  EXPECT_EQ(group.View().readers[0].stall, StallTime());
  EXPECT_EQ(group.View().readers[0].elapsed_us, 0);
}

TEST(DeliveryView, TimesThatCannotBeAddedUpStayNumbers) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 1);
  group.Consume(0, 1);
  const int64_t large = int64_t{1} << 61;
  for (int i = 0; i < 9; ++i) {
    ASSERT_THAT(
        world.delivery.Commit(group.readers[0].peer,
                              Commit{{kTrain, 0, 0}, StallTime{large, 0, 0, 0}, large}, world.now),
        IsOkStatus());
  }
  EXPECT_EQ(group.View().readers[0].elapsed_us, int64_t{1} << 62);
}

TEST(DeliveryView, DataStreamsOfEarlierGenerationsAreNotListedOnceNobodyLoadsThem) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1, {kTrain, kVal});
  group.Start();
  group.PushSteps(0, 1, kVal);
  group.loaders[0].Disconnect();
  ScriptedGroup next(world, 1, 1, {"other"});
  next.readers[0].open.generation = 2;
  next.Start();
  ASSERT_EQ(group.View().streams.size(), 1u);
  EXPECT_EQ(group.View().streams[0].stream, "other");
  next.PushSteps(0, 1, "other");
  next.Consume(0, 1, "other");
}

TEST(DeliveryView, ADataStreamWithoutReadersIsListedAsLongAsSomebodyLoadsIt) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1, {kTrain, kVal});
  group.Start();
  group.readers[0].open = OpenOf(0, 1, {kTrain});
  group.readers[0].open.generation = 2;
  group.readers[0].Start();
  EXPECT_EQ(group.View().streams.size(), 2u);
  group.loaders[0].Disconnect();
  EXPECT_EQ(group.View().streams.size(), 1u);
}

TEST(DeliveryView, MaxStepBytesIsWhatReadersNamed) {
  DeliveryOptions options = SmallOptions();
  options.told_bytes = [](int64_t memory) { return memory / 2; };
  DeliveryWorld world(options);
  ScriptedGroup group(world, 1, 1);
  group.Start();
  EXPECT_EQ(group.View().streams[0].max_step_bytes, kStepBytes / 2);
  EXPECT_EQ(group.View().streams[0].guaranteed_bytes, 3 * kStepBytes) << "of memory";
  ScriptedReader other(world, OpenOf(0, 1));
  StreamOf(other.open).max_step_bytes = 3 * kStepBytes;
  const absl::Status refused = other.Open().status();
  EXPECT_EQ(DetailsOf(refused)->values.at("yours"), "150");
  EXPECT_EQ(DetailsOf(refused)->values.at("theirs"), "50");
  const auto ack = group.loaders[0].Push({.step = 0, .bytes = kStepBytes + 1});
  ASSERT_TRUE(ack.has_value());
  EXPECT_THAT(std::string(ack->message()), HasSubstr("max_step_bytes 50"));
}

}  // namespace
}  // namespace cpshard
