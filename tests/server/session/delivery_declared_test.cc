// Groups that the server's configuration declares.
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

// Group g as OpenOf opens it.
DeclaredGroup Declared(int64_t cp_size, int64_t num_loaders,
                       const std::vector<std::string>& streams = {kTrain}) {
  DeclaredGroup group{.group = "g", .cp_size = cp_size, .options = "options"};
  for (const std::string& stream : streams) {
    group.streams.push_back({stream, kStepBytes, num_loaders});
  }
  return group;
}

DeliveryOptions With(DeclaredGroup group) {
  DeliveryOptions options = SmallOptions();
  options.groups = {std::move(group)};
  return options;
}

TEST(DeliveryDeclared, WhatLoadersPushIsTakenBeforeAnybodyHasOpenedTheGroup) {
  DeliveryWorld world(With(Declared(2, 2)));
  ScriptedGroup group(world, 2, 2);
  group.loaders[0].Start();
  EXPECT_THAT(group.loaders[0].box().lines, IsEmpty()) << "the other one is missing";
  group.loaders[1].Start();
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(0, 2));
  EXPECT_THAT(group.loaders[1].credits(), ElementsAre(1, 3));
  group.PushSteps(0, 4);
  EXPECT_EQ(group.View().streams[0].complete_steps, 4);
  for (ScriptedReader& reader : group.readers) reader.Start();
  for (ScriptedReader& reader : group.readers) {
    for (int64_t step = 0; step < 4; ++step) {
      EXPECT_THAT(reader.Get(step), Optional(IsOkStatus())) << step;
    }
  }
  EXPECT_EQ(group.loaders[0].position().from_step, 4) << "all of it is kept";
  EXPECT_EQ(group.loaders[0].position().generation, 1);
  EXPECT_EQ(world.delivery.counters().seeks, 1);
}

TEST(DeliveryDeclared, AnEndThatWasDeclaredBeforeIsStillTheEnd) {
  DeliveryWorld world(With(Declared(1, 1)));
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].Start();
  group.PushSteps(0, 2);
  ASSERT_THAT(group.loaders[0].End(2), IsOkStatus());
  group.readers[0].Start();
  group.Consume(0, 2);
  EXPECT_THAT(group.readers[0].Get(2), Optional(Refused(Code::kOutOfRange, "END_OF_STREAM")));
}

TEST(DeliveryDeclared, ReadersThatResumeFromACheckpointMoveTheirLoaders) {
  DeliveryWorld world(With(Declared(1, 1)));
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].Start();
  group.PushSteps(0, 3);
  OpenSession& open = group.readers[0].open;
  open.resume[kTrain] = 40;
  StreamOf(open).next_step = 40;
  StreamOf(open).resume = ResumeState{1, {{0, {39, "after 39"}}}};
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 40);
  EXPECT_EQ(group.loaders[0].position().state, (LoaderState{39, "after 39"}));
  group.PushSteps(40, 41);
  group.Consume(40, 41);
}

TEST(DeliveryDeclared, LoadersThatHaveBeenUnderWayWaitForTheirReaders) {
  DeliveryWorld world(With(Declared(1, 1)));
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].hello.generation_seen = 1;
  group.loaders[0].hello.streams[0].released = 5;
  group.loaders[0].hello.streams[0].held_from = 5;
  group.loaders[0].Start();
  EXPECT_THAT(group.loaders[0].box().lines, IsEmpty()) << "nobody asks it for step 0";
  EXPECT_THAT(group.View().streams[0].waiting_for, HasSubstr("its readers"));
  StreamOf(group.readers[0].open).next_step = 6;
  StreamOf(group.readers[0].open).resume = ResumeState{1, {{0, {5, "after 5"}}}};
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 6);
}

TEST(DeliveryDeclared, ASessionThatDisagreesIsRefusedWithBothValues) {
  struct Case {
    std::string field, yours, theirs;
    std::function<void(OpenSession&)> change;
  };
  DeclaredGroup declared = Declared(2, 1, {kTrain, kVal});
  declared.fingerprint = "data";
  const Case cases[] = {
      {"cp_size", "4", "2", [](auto& open) { open.cp_size = 4; }},
      {"options", "others", "options", [](auto& open) { open.options = "others"; }},
      {"executor", "cuda", "auto", [](auto& open) { open.executor = ExecutorKind::kCuda; }},
      {"fingerprint", "new", "data", [](auto& open) { open.fingerprint = "new"; }},
      {"data streams", "train", "train, val", [](auto& open) { open.streams.pop_back(); }},
      {"max_step_bytes of val", "7", "100",
       [](auto& open) { StreamOf(open, kVal).max_step_bytes = 7; }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.field);
    DeliveryWorld world(With(declared));
    for (const int64_t generation : {1, 9}) {
      ScriptedReader reader(world, OpenOf(0, 2, {kTrain, kVal}));
      reader.open.generation = generation;
      one.change(reader.open);
      const absl::Status refused = reader.Open().status();
      ASSERT_THAT(refused, Refused(Code::kFailedPrecondition, "TERMS_DIFFER"));
      EXPECT_EQ(DetailsOf(refused)->values.at("field"), one.field);
      EXPECT_EQ(DetailsOf(refused)->values.at("yours"), one.yours);
      EXPECT_EQ(DetailsOf(refused)->values.at("theirs"), one.theirs);
      EXPECT_THAT(std::string(refused.message()), HasSubstr("configuration"));
    }
    ScriptedReader right(world, OpenOf(0, 2, {kTrain, kVal}));
    EXPECT_TRUE(right.Open().ok()) << "the refusal has changed nothing";
  }
}

TEST(DeliveryDeclared, ItsExecutorIsThatOfItsBatchesBeforeAnybodyHasOpenedIt) {
  DeclaredGroup declared = Declared(1, 1);
  declared.executor = ExecutorKind::kCpu;
  DeliveryWorld world(With(declared));
  ScriptedGroup group(world, 1, 1);
  EXPECT_EQ(group.View().executor, ExecutorKind::kCpu);
  ScriptedReader& reader = group.readers[0];
  EXPECT_THAT(reader.Open().status(), Refused(Code::kFailedPrecondition, "TERMS_DIFFER"))
      << "it leaves it to the server";
  reader.open.executor = ExecutorKind::kCpu;
  EXPECT_TRUE(reader.Open().ok());
}

TEST(DeliveryDeclared, WithoutAFingerprintTheReadersNameIt) {
  DeliveryWorld world(With(Declared(1, 1)));
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].Start();
  group.PushSteps(0, 2);
  group.readers[0].open.fingerprint = "whatever";
  group.readers[0].Start();
  group.Consume(0, 2);
}

TEST(DeliveryDeclared, ALoaderThatDisagreesIsRefused) {
  DeliveryWorld world(With(Declared(1, 2)));
  ScriptedLoader more(world, HelloOf(0, 3));
  const absl::Status refused = more.Hello();
  EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "LOADERS_DIFFER"));
  EXPECT_EQ(DetailsOf(refused)->values.at("yours"), "3");
  EXPECT_EQ(DetailsOf(refused)->values.at("theirs"), "2");
  ScriptedLoader other(world, HelloOf(0, 2, {kVal}));
  EXPECT_THAT(other.Hello(), Refused(Code::kNotFound, "UNKNOWN_STREAM"));
}

TEST(DeliveryDeclared, ALoaderThatIsNotDeterministicFailsNoGenerationToCome) {
  DeliveryWorld world(With(Declared(1, 1)));
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].Start();
  group.PushSteps(0, 1);
  EXPECT_THAT(group.loaders[0].Push({.step = 0, .digest = 3}),
              Optional(Refused(Code::kFailedPrecondition, "DIGEST_CONFLICT")));
  EXPECT_EQ(world.alerts.size(), 1u);
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 0) << "what came before is not believed";
  group.PushSteps(0, 1);
  group.Consume(0, 1);
}

TEST(DeliveryDeclared, ItsRoomIsGuaranteedFromTheStart) {
  DeliveryOptions options = With(Declared(1, 1));
  options.budget_bytes = 5 * kStepBytes;
  DeliveryWorld world(options);
  ScriptedGroup other(world, 1, 1, {kTrain}, "h");
  EXPECT_THAT(other.readers[0].Open().status(), Refused(Code::kResourceExhausted, "BUDGET"));
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 1);
  group.Consume(0, 1);
}

TEST(DeliveryDeclared, ItIsListedFromTheStartAndNeverForgotten) {
  DeliveryWorld world(With(Declared(3, 1)));
  for (int i = 0; i < 12; ++i) {  // four groups at most
    ScriptedGroup passing(world, 1, 1, {kTrain}, "h" + std::to_string(i));
    passing.Start();
    passing.readers[0].Close();
    passing.readers[0].Disconnect();
    passing.loaders[0].Disconnect();
  }
  const auto view = world.delivery.View("g", world.now);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(view->declared);
  EXPECT_FALSE(view->opened);
  EXPECT_EQ(view->cp_size, 3);
  EXPECT_EQ(view->streams[0].num_loaders, 1);
  EXPECT_THAT(view->streams[0].waiting_for, HasSubstr("loader 0 of 1 of train to come"));
}

TEST(DeliveryDeclared, ACheckpointInsideThePrefetchedWindowMovesTheLoadersToo) {
  DeliveryWorld world(With(Declared(1, 1)));
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].Start();
  group.PushSteps(0, 3);
  OpenSession& open = group.readers[0].open;
  open.resume[kTrain] = 2;
  StreamOf(open).next_step = 2;
  StreamOf(open).resume = ResumeState{1, {{0, {1, "of another order"}}}};
  group.readers[0].Start();
  EXPECT_EQ(group.loaders[0].position().from_step, 2) << "its step 2 was made from no state";
  EXPECT_EQ(group.loaders[0].position().state, (LoaderState{1, "of another order"}));
  group.PushSteps(2, 4);
  group.Consume(2, 4);
}

TEST(DeliveryDeclared, AMistakenGenerationIsForgottenThoughNobodyHasOpened) {
  DeliveryWorld world(With(Declared(1, 1)));
  ScriptedGroup group(world, 1, 1);
  group.loaders[0].hello.generation_seen = 99;
  group.loaders[0].Start();
  group.loaders[0].Disconnect();
  EXPECT_THAT(group.readers[0].Open().status(), Refused(Code::kAborted, "STALE_GENERATION"));
  world.Pass(world.options.rank_timeout + absl::Seconds(1));
  EXPECT_THAT(group.readers[0].Open().status(), IsOkStatus());
}

TEST(DeliveryDeclared, AMistakenGenerationIsNotToldToOtherLoaders) {
  DeliveryWorld world(With(Declared(1, 2)));
  ScriptedGroup group(world, 1, 2);
  group.loaders[0].hello.generation_seen = 99;
  for (ScriptedLoader& loader : group.loaders) loader.Start();
  group.loaders[0].hello.generation_seen = 0;
  group.loaders[0].hello.incarnation += 1;
  group.loaders[0].Start();
  EXPECT_EQ(group.loaders[1].position().generation, 0);
  group.readers[0].Start();
  group.PushSteps(0, 2);
  group.Consume(0, 2);
}

TEST(DeliveryDeclared, ItsNextRunFindsTheRoomThatItHad) {
  DeliveryOptions options = With(Declared(1, 1));
  options.budget_bytes = 5 * kStepBytes;
  DeliveryWorld world(options);
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ASSERT_THAT(group.readers[0].EndOf(group.readers[0].Close()), Optional(IsOkStatus()));
  ScriptedGroup other(world, 1, 1, {kTrain}, "h");
  EXPECT_THAT(other.readers[0].Open().status(), Refused(Code::kResourceExhausted, "BUDGET"));
  group.readers[0].open.generation = 2;
  EXPECT_THAT(group.readers[0].Open().status(), IsOkStatus());
}

}  // namespace
}  // namespace cpshard
