// Passes: a validation stream is read once in each, and the loaders hear when one is over.
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

// Two ranks that train and, now and then, validate; the validation stream is closed at first.
struct Training {
  Training() {
    for (ScriptedReader& reader : group.readers) StreamOf(reader.open, kVal).closed = true;
    group.Start();
  }
  // Both ranks go over the two steps of a pass that is open.
  void Validate(int64_t pass) {
    std::vector<std::vector<uint64_t>> asked(2);
    for (int64_t rank = 0; rank < 2; ++rank) {
      for (int64_t step = 0; step < 3; ++step) {
        asked[rank].push_back(group.readers[rank].Ask(step, kVal, pass));
      }
    }
    ASSERT_EQ(loader.position(kVal).pass, pass);
    group.PushSteps(0, 2, kVal);
    ASSERT_THAT(loader.End(2, kVal), IsOkStatus());
    for (int64_t rank = 0; rank < 2; ++rank) {
      ScriptedReader& reader = group.readers[rank];
      EXPECT_THAT(reader.AnswerTo(asked[rank][1]), Optional(IsOkStatus()));
      EXPECT_THAT(reader.AnswerTo(asked[rank][2]),
                  Optional(Refused(Code::kOutOfRange, "END_OF_STREAM")));
      ASSERT_THAT(reader.Commit(1, kVal, pass), IsOkStatus());
      reader.SentAll();
    }
  }
  int64_t ValBytes() const { return group.View().streams.at(1).used_bytes; }

  DeliveryWorld world;
  ScriptedGroup group{world, 2, 1, {kTrain, kVal}};
  ScriptedLoader& loader = group.loaders[0];
};

TEST(DeliveryPasses, AClosedPassOpensWithTheFirstRequestOfEveryReader) {
  Training job;
  EXPECT_EQ(job.loader.position(kTrain).from_step, 0) << "training does not wait";
  EXPECT_EQ(job.loader.credits(kVal).size(), 0u);
  const uint64_t first = job.group.readers[0].Ask(0, kVal);
  EXPECT_EQ(job.loader.credits(kVal).size(), 0u) << "the other rank has not asked";
  EXPECT_THAT(job.group.View().streams.at(1).waiting_for, HasSubstr("rank 1"));
  job.group.readers[1].Ask(0, kVal);
  EXPECT_THAT(job.loader.credits(kVal), ElementsAre(0, 1, 2, 3));
  job.group.PushSteps(0, 1, kVal);
  EXPECT_THAT(job.group.readers[0].AnswerTo(first), Optional(IsOkStatus()));
}

TEST(DeliveryPasses, APassThatAllHaveLeftIsFreedAndItsLoadersAreToldDone) {
  Training job;
  job.Validate(0);
  ASSERT_THAT(job.group.readers[0].ClosePass(0, false, kVal), IsOkStatus());
  EXPECT_THAT(job.loader.box().dones, IsEmpty()) << "one of two";
  EXPECT_GT(job.ValBytes(), 0);
  ASSERT_THAT(job.group.readers[1].ClosePass(0, false, kVal), IsOkStatus());
  EXPECT_THAT(job.loader.box().dones, ElementsAre(PassDone{kVal, 0, false}));
  EXPECT_EQ(job.ValBytes(), 0);
}

TEST(DeliveryPasses, EveryPassBeginsAtStepZeroWithItsOwnEnd) {
  Training job;
  for (int64_t pass = 0; pass < 3; ++pass) {
    job.Validate(pass);
    EXPECT_EQ(job.loader.position(kVal).from_step, 0);
    EXPECT_EQ(job.loader.position(kVal).state, std::nullopt);
    for (ScriptedReader& reader : job.group.readers) {
      ASSERT_THAT(reader.ClosePass(pass, false, kVal), IsOkStatus());
    }
  }
  EXPECT_EQ(job.loader.box().dones.size(), 3u);
  job.group.PushSteps(0, 2, kTrain);
  job.group.Consume(0, 2, kTrain);
}

TEST(DeliveryPasses, AReaderInALaterPassCountsAsClosedForTheEarlierOnes) {
  Training job;
  job.Validate(0);
  ASSERT_THAT(job.group.readers[0].ClosePass(0, false, kVal), IsOkStatus());
  const uint64_t next = job.group.readers[0].Ask(0, kVal, 1);
  EXPECT_EQ(job.group.readers[0].AnswerTo(next), std::nullopt) << "pass 0 is not over";
  EXPECT_THAT(job.group.readers[1].Get(1, kVal, 0), Optional(IsOkStatus()));
  ASSERT_THAT(job.group.readers[1].ClosePass(0, false, kVal), IsOkStatus());
  job.group.readers[1].Ask(0, kVal, 1);
  EXPECT_EQ(job.loader.position(kVal).pass, 1);
  job.group.PushSteps(0, 1, kVal);
  EXPECT_THAT(job.group.readers[0].AnswerTo(next), Optional(IsOkStatus()));
}

TEST(DeliveryPasses, AReaderThatReopensInALaterPassHasClosedTheEarlierOnes) {
  Training job;
  job.Validate(0);
  ASSERT_THAT(job.group.readers[0].ClosePass(0, false, kVal), IsOkStatus());
  StreamOf(job.group.readers[1].open, kVal) = {
      .name = kVal, .pass = 1, .closed = true, .max_step_bytes = kStepBytes, .resume = {}};
  job.group.readers[1].Start();
  EXPECT_THAT(job.loader.box().dones, ElementsAre(PassDone{kVal, 0, false}));
  job.Validate(1);
}

TEST(DeliveryPasses, AFreshServerBeginsInThePassThatTheReadersAreIn) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1, {kVal});
  for (ScriptedReader& reader : group.readers) StreamOf(reader.open, kVal).pass = 5;
  StreamOf(group.readers[0].open, kVal).next_step = 1;
  StreamOf(group.readers[0].open, kVal).received = 0;
  group.loaders[0].hello.streams[0].pass = 5;
  group.Start();
  EXPECT_EQ(group.loaders[0].position(kVal).pass, 5);
  EXPECT_EQ(group.loaders[0].position(kVal).from_step, 0);
  // A request without a word on passes is for another one.
  const auto other = group.readers[0].Get(1, kVal, 0);
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(other->message()), HasSubstr("pass 5"));
}

TEST(DeliveryPasses, NoPassIsTooFarAway) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1, {kVal});
  const int64_t far = int64_t{1} << 62;
  StreamOf(group.readers[0].open, kVal).pass = far;
  group.readers[0].open.job = "j";
  group.readers[0].open.job_groups = 2;
  group.Start();
  EXPECT_EQ(group.loaders[0].position(kVal).pass, far);
}

TEST(DeliveryPasses, PushesOfAPassThatIsOverAreDroppedSilently) {
  Training job;
  job.Validate(0);
  const int64_t epoch = job.loader.position(kVal).epoch;
  for (ScriptedReader& reader : job.group.readers) {
    ASSERT_THAT(reader.ClosePass(0, false, kVal), IsOkStatus());
    reader.Ask(0, kVal, 1);
  }
  Item late{.step = 0, .stream = kVal};
  late.pass = 0;
  late.epoch = epoch;
  EXPECT_EQ(job.loader.Push(late), std::nullopt);
  late.epoch = job.loader.position(kVal).epoch;
  EXPECT_EQ(job.loader.Push(late), std::nullopt);
  EXPECT_THAT(job.group.readers[0].Get(0, kVal, 1), std::nullopt);
}

TEST(DeliveryPasses, CommitsOfAPassThatIsOverMoveNothing) {
  Training job;
  job.Validate(0);
  for (ScriptedReader& reader : job.group.readers) {
    ASSERT_THAT(reader.ClosePass(0, false, kVal), IsOkStatus());
    reader.Ask(0, kVal, 1);
  }
  EXPECT_THAT(job.group.readers[0].Commit(1, kVal, 0), IsOkStatus());
  EXPECT_EQ(job.group.View().readers.at(0).streams.at(1).next_step, 0);
  EXPECT_THAT(job.group.readers[0].Commit(0, kVal, 2),
              Refused(Code::kFailedPrecondition, "AHEAD_OF_DELIVERY"));
}

TEST(DeliveryPasses, WhatAReaderStillWaitsForWhenItClosesAPassIsAnswered) {
  Training job;
  const uint64_t waits = job.group.readers[0].Ask(0, kVal);
  ASSERT_THAT(job.group.readers[0].ClosePass(0, false, kVal), IsOkStatus());
  ASSERT_TRUE(job.group.readers[0].AnswerTo(waits).has_value());
  EXPECT_FALSE(job.group.readers[0].AnswerTo(waits)->ok());
  EXPECT_EQ(job.group.View().readers.at(0).wants, 0);
}

TEST(DeliveryPasses, AFinishedDataStreamTellsItsLoadersAndThoseThatComeLater) {
  Training job;
  job.Validate(0);
  for (ScriptedReader& reader : job.group.readers) {
    ASSERT_THAT(reader.ClosePass(0, /*finished=*/true, kVal), IsOkStatus());
  }
  EXPECT_THAT(job.loader.box().dones, ElementsAre(PassDone{kVal, 0, true}));
  job.loader.hello.generation_seen = 1;
  job.loader.Start();
  EXPECT_THAT(job.loader.box().dones, ElementsAre(PassDone{kVal, 0, true}));
  EXPECT_EQ(job.loader.box().positions.size(), 1u) << "of train alone";
  const auto asked = job.group.readers[0].Get(0, kVal, 1);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->code(), Code::kFailedPrecondition);
}

TEST(DeliveryPasses, APassThatTheReaderIsNotInCannotBeClosed) {
  Training job;
  EXPECT_THAT(job.group.readers[0].ClosePass(3, false, kVal),
              Refused(Code::kFailedPrecondition, "NOT_IN_PASS"));
  ASSERT_THAT(job.group.readers[0].ClosePass(0, false, kVal), IsOkStatus());
  EXPECT_THAT(job.group.readers[0].ClosePass(0, false, kVal), IsOkStatus()) << "said again";
  EXPECT_EQ(job.group.View().readers.at(0).streams.at(1).pass, 1);
}

}  // namespace
}  // namespace cpshard
