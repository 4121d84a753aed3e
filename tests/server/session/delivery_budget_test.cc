// Memory: what a data stream is guaranteed, what is shared, what is held by whom and for how long.
#include <gtest/gtest.h>

#include <cstdlib>

#include "proto/error_details.h"
#include "tests/server/session/delivery_peers.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using Code = absl::StatusCode;

constexpr int64_t kGuarantee = 3 * kStepBytes;  // replay_steps is 1

DeliveryOptions WithBudget(int64_t bytes, int64_t ahead_steps = 3) {
  DeliveryOptions options = SmallOptions();
  options.budget_bytes = bytes;
  options.ahead_steps = ahead_steps;
  return options;
}

int64_t Used(const DeliveryWorld& world) { return world.delivery.counters().used_bytes; }

// Pushes and consumes steps [step, end) of full size, one by one.
void Stream(ScriptedGroup& group, int64_t step, int64_t end, const std::string& stream = kTrain) {
  for (; step < end; ++step) {
    const Item item{.step = step, .stream = stream, .bytes = kStepBytes};
    for (ScriptedLoader& loader : group.loaders) {
      if (step % loader.hello.num_loaders != loader.hello.loader) continue;
      ASSERT_THAT(loader.Push(item), Optional(IsOkStatus())) << stream << "/" << step;
    }
    group.Consume(step, step + 1, stream);
  }
}

TEST(DeliveryBudget, AStepIsChargedWholeUntilItIsCompleteAndThenWhatItHolds) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  EXPECT_EQ(Used(world), 4 * kStepBytes) << "four credits are out";
  ScriptedLoader& loader = group.loaders[0];
  ASSERT_THAT(loader.Push({.microbatch = 0, .last = false, .bytes = 10}), Optional(IsOkStatus()));
  EXPECT_EQ(Used(world), 4 * kStepBytes);
  ASSERT_THAT(loader.Push({.microbatch = 1, .bytes = 15}), Optional(IsOkStatus()));
  EXPECT_EQ(Used(world), 3 * kStepBytes + 25);
}

TEST(DeliveryBudget, UnderAMinimalBudgetEveryDataStreamHasItsOwnRoom) {
  DeliveryWorld world(WithBudget(2 * kGuarantee));
  ScriptedGroup group(world, 1, 1, {kTrain, kVal});
  group.Start();
  EXPECT_THAT(group.loaders[0].credits(kTrain), ElementsAre(0, 1, 2));
  EXPECT_THAT(group.loaders[0].credits(kVal), ElementsAre(0, 1, 2));
  // One of them is full and nobody consumes it: the other one goes on.
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_THAT(group.loaders[0].Push({.step = step, .stream = kVal, .bytes = kStepBytes}),
                Optional(IsOkStatus()));
  }
  Stream(group, 0, 20, kTrain);
  for (int64_t step = 0; step < 3; ++step) group.Consume(step, step + 1, kVal);
  Stream(group, 3, 20, kVal);
  EXPECT_LE(world.delivery.counters().most_used_bytes, 2 * kGuarantee);
}

TEST(DeliveryBudget, SharedPrefetchStopsAtFourFifthsOfTheBudget) {
  DeliveryWorld world(WithBudget(10 * kStepBytes, /*ahead_steps=*/30));
  ScriptedGroup group(world, 1, 1);
  group.Start();
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(Used(world), 8 * kStepBytes);
  // What steps turn out not to need can be credited.
  group.loaders[0].PushSteps(0, 5);  // 40 bytes each
  EXPECT_LE(Used(world), 8 * kStepBytes);
  EXPECT_EQ(group.loaders[0].credits().back(), 10) << "5 steps hold 200 bytes, 6 are credited";
}

TEST(DeliveryBudget, SharedRoomNeverTakesWhatAnotherOneIsGuaranteed) {
  DeliveryWorld world(WithBudget(8 * kStepBytes, /*ahead_steps=*/30));
  ScriptedGroup early(world, 1, 1);
  early.Start();
  EXPECT_THAT(early.loaders[0].credits(), ElementsAre(0, 1, 2, 3, 4, 5)) << "4/5 are 640 bytes";
  // The next one comes into its own as the shared room is given back.
  ScriptedGroup late(world, 1, 1, {kTrain}, "h");
  late.Start();
  EXPECT_LE(Used(world), 8 * kStepBytes);
  Stream(early, 0, 6);
  EXPECT_GE(late.loaders[0].credits().size(), 3u);
  Stream(late, 0, 10);
  Stream(early, 6, 12);
  EXPECT_LE(world.delivery.counters().most_used_bytes, 8 * kStepBytes);
}

TEST(DeliveryBudget, APushWithoutACreditHasToWaitForIt) {
  DeliveryWorld world(WithBudget(kGuarantee));
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ASSERT_THAT(group.loaders[0].credits(), ElementsAre(0, 1, 2));
  const auto ack = group.loaders[0].Push({.step = 3});  // the window would have room
  ASSERT_TRUE(ack.has_value());
  EXPECT_THAT(*ack, Refused(Code::kResourceExhausted, "NO_CREDIT"));
  EXPECT_THAT(std::string(ack->message()), HasSubstr("train/3"));
  EXPECT_TRUE(DetailsOf(*ack)->retry_after.has_value());
  Stream(group, 0, 6);
}

TEST(DeliveryBudget, AnOpenWhoseGuaranteesDoNotFitIsRefused) {
  DeliveryWorld world(WithBudget(5 * kStepBytes));
  ScriptedGroup two(world, 1, 1, {kTrain, kVal});
  const absl::Status refused = two.readers[0].Open().status();
  EXPECT_THAT(refused, Refused(Code::kResourceExhausted, "BUDGET"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("600"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("500"));
  EXPECT_EQ(DetailsOf(refused)->values.at("budget"), "500");
  EXPECT_EQ(world.delivery.View("g", world.now).status().code(), Code::kNotFound);

  ScriptedGroup one(world, 1, 1);
  one.Start();
  ScriptedGroup other(world, 1, 1, {kTrain}, "h");
  EXPECT_THAT(other.readers[0].Open().status(), Refused(Code::kResourceExhausted, "BUDGET"));
  // The same group may open its next generation in its own room, however often.
  one.readers[0].open.generation = 2;
  one.readers[0].Start();
  StreamOf(one.readers[0].open).max_step_bytes = 501;
  one.readers[0].open.generation = 3;
  EXPECT_THAT(one.readers[0].Open().status(), Refused(Code::kResourceExhausted, "BUDGET"));
  EXPECT_EQ(one.View().generation, 2) << "nothing changed by it";
  Stream(one, 0, 5);
}

TEST(DeliveryBudget, AGroupThatHasEndedLeavesItsRoomToOthers) {
  DeliveryWorld world(WithBudget(kGuarantee));
  for (const char* name : {"a", "b", "c"}) {
    ScriptedGroup group(world, 1, 1, {kTrain}, name);
    group.Start();
    Stream(group, 0, 5);
    const PeerId call = group.readers[0].Close();
    EXPECT_THAT(group.readers[0].EndOf(call), Optional(IsOkStatus()));
    EXPECT_EQ(Used(world), 0) << name;
    EXPECT_EQ(group.View().streams.at(0).guaranteed_bytes, 0);
  }
}

TEST(DeliveryBudget, AFinishedDataStreamLeavesItsRoom) {
  DeliveryWorld world(WithBudget(2 * kGuarantee));
  ScriptedGroup group(world, 1, 1, {kTrain, kVal});
  group.Start();
  Stream(group, 0, 2, kVal);
  ASSERT_THAT(group.readers[0].ClosePass(0, /*finished=*/true, kVal), IsOkStatus());
  const GroupView view = group.View();
  EXPECT_EQ(view.streams.at(1).stream, kVal);
  EXPECT_EQ(view.streams.at(1).guaranteed_bytes, 0);
  EXPECT_EQ(view.streams.at(1).used_bytes, 0);
  ScriptedGroup other(world, 1, 1, {kTrain}, "h");
  other.Start();
  Stream(other, 0, 5);
  Stream(group, 0, 5);
}

// --- pins

TEST(DeliveryBudget, WhatASlowReaderHasNotSentStaysCharged) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_THAT(group.loaders[0].Push({.step = step, .bytes = kStepBytes}), Optional(IsOkStatus()));
    ASSERT_THAT(group.readers[0].Get(step), Optional(IsOkStatus()));
  }
  ASSERT_THAT(group.readers[0].Commit(3), IsOkStatus());
  // The window holds step 3 and credits for 4 .. 6; 0 .. 2 are on their way.
  EXPECT_EQ(Used(world), 7 * kStepBytes);
  group.readers[0].SentAll();
  EXPECT_EQ(Used(world), 4 * kStepBytes);
}

TEST(DeliveryBudget, ABatchThatIsOnItsWayTwiceIsHeldByBoth) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.loaders[0].PushSteps(0, 4);
  for (ScriptedReader& reader : group.readers) {
    for (int64_t step = 0; step < 4; ++step) ASSERT_THAT(reader.Get(step), Optional(IsOkStatus()));
    ASSERT_THAT(reader.Commit(3), IsOkStatus());
  }
  const int64_t held = 3 * 40, window = 40 + 3 * kStepBytes;
  EXPECT_EQ(Used(world), window + held);
  group.readers[0].SentAll();
  EXPECT_EQ(Used(world), window + held);
  group.readers[1].SentAll();
  EXPECT_EQ(Used(world), window);
}

TEST(DeliveryBudget, PinsOfAFencedReaderStayChargedUntilItsCallIsGone) {
  DeliveryWorld world(WithBudget(kGuarantee));
  ScriptedGroup group(world, 1, 1);
  group.Start();
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_THAT(group.loaders[0].Push({.step = step, .bytes = kStepBytes}), Optional(IsOkStatus()));
    ASSERT_THAT(group.readers[0].Get(step), Optional(IsOkStatus()));
  }
  const PeerId fenced = group.readers[0].peer;
  group.readers[0].open.generation = 2;
  group.readers[0].open.fingerprint = "other data";
  group.readers[0].Start();
  const size_t before = group.loaders[0].credits().size();
  EXPECT_EQ(Used(world), 3 * kStepBytes);
  EXPECT_EQ(group.loaders[0].credits().size(), before) << "there is no room yet";
  world.Disconnect(fenced);
  EXPECT_EQ(group.loaders[0].credits().size(), before + 3);
  EXPECT_LE(world.delivery.counters().most_used_bytes, kGuarantee);
  Stream(group, 0, 5);
}

TEST(DeliveryBudget, AStalledReaderHurtsOnlyItsOwnGroup) {
  DeliveryWorld world(WithBudget(2 * kGuarantee));
  ScriptedGroup stalled(world, 2, 1), other(world, 1, 1, {kTrain}, "h");
  stalled.Start();
  other.Start();
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_THAT(stalled.loaders[0].Push({.step = step, .bytes = kStepBytes}),
                Optional(IsOkStatus()));
    for (ScriptedReader& reader : stalled.readers) {
      ASSERT_THAT(reader.Get(step), Optional(IsOkStatus()));
    }
  }
  // It commits, but its socket takes nothing.
  for (ScriptedReader& reader : stalled.readers) ASSERT_THAT(reader.Commit(2), IsOkStatus());
  stalled.readers[0].SentAll();
  Stream(other, 0, 30);
  EXPECT_LE(world.delivery.counters().most_used_bytes, 2 * kGuarantee);
  stalled.readers[1].SentAll();
  Stream(stalled, 3, 10);
}

TEST(DeliveryBudget, APushThatIsCutOffGivesItsRoomBackWhenItEnds) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.loaders[0].PushSteps(0, 1);
  const Item item{.step = 1};
  const uint64_t landing = group.loaders[0].Begin(item);
  group.readers[0].open.generation = 2;
  group.readers[0].open.fingerprint = "other data";
  group.readers[0].Start();
  EXPECT_EQ(Used(world), 5 * kStepBytes) << "four new credits, and what lands";
  group.loaders[0].Finish(landing, item);
  EXPECT_EQ(Used(world), 4 * kStepBytes);
}

TEST(DeliveryBudget, AComparedDuplicateTakesRoomOnlyWhileItLands) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.loaders[0].PushSteps(0, 1);
  const int64_t before = Used(world);
  Item silent{.step = 0};
  silent.send_digest = false;
  const uint64_t landing = group.loaders[0].Begin(silent);
  ASSERT_NE(landing, 0u);
  EXPECT_EQ(Used(world), before + silent.bytes);
  group.loaders[0].Finish(landing, silent);
  EXPECT_EQ(Used(world), before);
}

TEST(DeliveryBudget, AComparedDuplicateOfABusyServerHasToWait) {
  DeliveryWorld world(WithBudget(kGuarantee));
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ASSERT_THAT(group.loaders[0].Push({.step = 0, .bytes = kStepBytes}), Optional(IsOkStatus()));
  Item silent{.step = 0, .bytes = kStepBytes};
  silent.send_digest = false;
  const auto ack = group.loaders[0].Push(silent);
  ASSERT_TRUE(ack.has_value());
  EXPECT_THAT(*ack, Refused(Code::kResourceExhausted, "BUDGET"));
  EXPECT_TRUE(DetailsOf(*ack)->retry_after.has_value());
}

// --- who gets what is shared

TEST(DeliveryBudget, SharedRoomIsDealtOutByBytesInTurns) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  DeliveryWorld world(WithBudget(1000 * kMiB, /*ahead_steps=*/1000));
  const auto make = [&](const char* name, int64_t step_bytes) {
    auto group =
        std::make_unique<ScriptedGroup>(world, 1, 1, std::vector<std::string>{kTrain}, name);
    StreamOf(group->readers[0].open).max_step_bytes = step_bytes;
    group->Start();
    return group;
  };
  // Takes all that is shared before the others come.
  const auto hog = make("hog", kMiB);
  ASSERT_EQ(Used(world), 800 * kMiB);
  const auto small = make("small", kMiB), large = make("large", 32 * kMiB);
  ASSERT_EQ(Used(world), (800 + 3 + 96) * kMiB);
  ASSERT_THAT(hog->readers[0].EndOf(hog->readers[0].Close()), Optional(IsOkStatus()));
  const int64_t small_used = small->View().streams.at(0).used_bytes - 3 * kMiB;
  const int64_t large_used = large->View().streams.at(0).used_bytes - 96 * kMiB;
  EXPECT_GT(small_used + large_used, (800 - 99 - 33) * kMiB) << "all of it is dealt out";
  EXPECT_LE(std::abs(small_used - large_used), (32 + 8) * kMiB) << small_used << " " << large_used;
}

TEST(DeliveryBudget, GuaranteedRoomIsTakenBackFromCreditsThatNothingHasComeFor) {
  DeliveryWorld world(WithBudget(8 * kStepBytes, /*ahead_steps=*/30));
  ScriptedGroup early(world, 1, 1);
  early.Start();
  EXPECT_THAT(early.loaders[0].credits(), ElementsAre(0, 1, 2, 3, 4, 5));
  early.loaders[0].box().credits.clear();
  ScriptedGroup late(world, 1, 1, {kTrain}, "h");
  late.Start();
  EXPECT_THAT(late.loaders[0].credits(), ElementsAre(0, 1, 2)) << "though nobody moves";
  EXPECT_EQ(early.loaders[0].position().from_step, 0);
  EXPECT_THAT(early.loaders[0].credits(), ElementsAre(0, 1, 2)) << "what is left, said anew";
  const auto ack = early.loaders[0].Push({.step = 4});
  ASSERT_TRUE(ack.has_value());
  EXPECT_THAT(*ack, Refused(Code::kResourceExhausted, "NO_CREDIT"));
  Stream(early, 0, 9);
  Stream(late, 0, 9);
  EXPECT_LE(world.delivery.counters().most_used_bytes, 8 * kStepBytes);
}

TEST(DeliveryBudget, WhatHasLandedIsNotTakenBack) {
  DeliveryWorld world(WithBudget(8 * kStepBytes, /*ahead_steps=*/30));
  ScriptedGroup early(world, 1, 1);
  early.Start();
  for (int64_t step = 0; step < 6; ++step) {
    ASSERT_THAT(early.loaders[0].Push({.step = step, .bytes = kStepBytes}), Optional(IsOkStatus()));
  }
  ScriptedGroup late(world, 1, 1, {kTrain}, "h");
  late.Start();
  EXPECT_THAT(late.loaders[0].credits(), ElementsAre(0, 1)) << "200 bytes are free";
  early.Consume(0, 6);
  EXPECT_THAT(late.loaders[0].credits(), testing::Contains(2));
}

}  // namespace
}  // namespace cpshard
