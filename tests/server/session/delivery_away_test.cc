// Those who are away for too long, deadlines, and a server that stops.
#include <gtest/gtest.h>

#include "proto/error_details.h"
#include "tests/server/session/delivery_peers.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using Code = absl::StatusCode;

testing::Matcher<std::optional<absl::Status>> PeerHasLeft() {
  return Optional(Refused(Code::kAborted, "PEER_LEFT"));
}

// --- away

struct Away {
  Away() {
    group.Start();
    group.PushSteps(0, 2);
    group.Consume(0, 1);
  }
  DeliveryWorld world;
  ScriptedGroup group{world, 3, 1};
  ScriptedReader& here = group.readers[0];
  ScriptedReader& gone = group.readers[2];
};

TEST(DeliveryAway, ForTooLongFailsRequestsForIncompleteStepsOnly) {
  Away job;
  const uint64_t waits = job.here.Ask(2);
  job.gone.Disconnect();
  EXPECT_EQ(job.world.delivery.NextTick(), job.world.now + job.world.options.rank_timeout);
  job.world.Pass(job.world.options.rank_timeout - absl::Seconds(1));
  EXPECT_EQ(job.here.AnswerTo(waits), std::nullopt);
  job.world.Pass(absl::Seconds(1));
  const auto answer = job.here.AnswerTo(waits);
  ASSERT_THAT(answer, PeerHasLeft());
  EXPECT_EQ(DetailsOf(*answer)->values.at("rank"), "2");
  EXPECT_EQ(DetailsOf(*answer)->values.at("last_step"), "0");
  EXPECT_THAT(std::string(answer->message()), HasSubstr("r2"));
  EXPECT_THAT(job.here.Get(1), Optional(IsOkStatus())) << "complete steps stay";
  EXPECT_THAT(job.here.Get(3), PeerHasLeft()) << "at once";
  EXPECT_THAT(job.here.box().ends, IsEmpty()) << "an answer to one request";
  EXPECT_EQ(job.here.Commit(1).code(), Code::kOk);
}

TEST(DeliveryAway, AReturnMakesRequestsWorkAgain) {
  for (const bool reopens : {false, true}) {
    Away job;
    job.gone.Disconnect();
    job.world.Pass(job.world.options.rank_timeout);
    ASSERT_THAT(job.here.Get(2), PeerHasLeft());
    if (reopens) {
      job.gone.open.incarnation = 2;
      StreamOf(job.gone.open).next_step = 1;
      StreamOf(job.gone.open).received = 0;
      job.gone.Start();
    } else {
      ASSERT_THAT(job.gone.Attach(), IsOkStatus());
    }
    const uint64_t waits = job.here.Ask(2);
    EXPECT_EQ(job.here.AnswerTo(waits), std::nullopt);
    job.group.PushSteps(2, 3);
    EXPECT_THAT(job.here.AnswerTo(waits), Optional(IsOkStatus()));
    EXPECT_THAT(job.gone.Get(1), Optional(IsOkStatus())) << "from its own lowest step";
  }
}

TEST(DeliveryAway, AStepThatBecomesCompleteCanBeHad) {
  Away job;
  job.gone.Disconnect();
  job.world.Pass(job.world.options.rank_timeout);
  ASSERT_THAT(job.here.Get(2), PeerHasLeft());
  job.group.PushSteps(2, 3);
  EXPECT_THAT(job.here.Get(2), Optional(IsOkStatus()));
}

TEST(DeliveryAway, AReaderThatOpenedAndNeverConnectedIsAwayToo) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.loaders[0].Start();
  group.readers[0].Start();
  ASSERT_TRUE(group.readers[1].Open().ok());
  const uint64_t waits = group.readers[0].Ask(0);
  world.Pass(world.options.rank_timeout);
  EXPECT_THAT(group.readers[0].AnswerTo(waits), PeerHasLeft());
}

TEST(DeliveryAway, AReaderThatMakesSingleCallsIsThere) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.readers[1].Disconnect();
  const uint64_t waits = group.readers[0].Ask(0);
  for (int i = 0; i < 3; ++i) {
    world.Pass(world.options.rank_timeout - absl::Seconds(1));
    const PeerId call = world.Connect();
    ASSERT_THAT(world.delivery.Attach(call, group.readers[1].name(), false, world.now),
                IsOkStatus());
    world.Disconnect(call);
  }
  EXPECT_EQ(group.readers[0].AnswerTo(waits), std::nullopt);
  world.Pass(world.options.rank_timeout);
  EXPECT_THAT(group.readers[0].AnswerTo(waits), PeerHasLeft());
}

TEST(DeliveryAway, AReaderWhoseSingleCallWaitsIsThere) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.readers[1].Disconnect();
  const PeerId call = world.Connect();
  ASSERT_THAT(world.delivery.Attach(call, group.readers[1].name(), false, world.now), IsOkStatus());
  world.delivery.Want(call, Want{1, {kTrain, 0, 0}}, world.now);
  const uint64_t waits = group.readers[0].Ask(0);
  for (int i = 0; i < 4; ++i) world.Pass(world.options.rank_timeout);
  EXPECT_EQ(group.readers[0].AnswerTo(waits), std::nullopt);
  world.Disconnect(call);
  world.Pass(2 * world.options.rank_timeout);
  EXPECT_THAT(group.readers[0].AnswerTo(waits), PeerHasLeft());
}

TEST(DeliveryAway, AReaderThatComesBackAloneIsNotToldOfItself) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.readers[0].Disconnect();
  world.Pass(10 * world.options.rank_timeout);
  EXPECT_THAT(group.readers[0].Attach(), Refused(Code::kNotFound, "UNKNOWN_READER"));
  group.readers[0].Start();
  const uint64_t waits = group.readers[0].Ask(0);
  EXPECT_EQ(group.readers[0].AnswerTo(waits), std::nullopt);
  group.PushSteps(0, 1);
  EXPECT_THAT(group.readers[0].AnswerTo(waits), Optional(IsOkStatus()));
}

// --- deadlines

Want WithDeadline(int64_t step, absl::Duration after, const std::string& stream = kTrain) {
  Want want;
  want.at = {stream, 0, step};
  want.timeout_ms = absl::ToInt64Milliseconds(after);
  return want;
}

std::string DeadlineText(ScriptedReader& reader, DeliveryWorld& world, int64_t step) {
  const uint64_t asked = reader.Ask(WithDeadline(step, absl::Seconds(5)));
  world.Pass(absl::Seconds(5));
  const auto answer = reader.AnswerTo(asked);
  if (!answer) return "not answered";
  EXPECT_THAT(*answer, Refused(Code::kDeadlineExceeded, "NOT_READY"));
  EXPECT_TRUE(DetailsOf(*answer)->values.contains("waiting_for"));
  return std::string(answer->message());
}

TEST(DeliveryDeadline, IsAnsweredThenAndNotBefore) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  const uint64_t short_one = group.readers[0].Ask(WithDeadline(0, absl::Seconds(2)));
  const uint64_t long_one = group.readers[0].Ask(WithDeadline(0, absl::Seconds(4)));
  const uint64_t patient = group.readers[0].Ask(0);
  EXPECT_EQ(world.delivery.NextTick(), world.now + absl::Seconds(2));
  world.Pass(absl::Milliseconds(1999));
  EXPECT_EQ(group.readers[0].AnswerTo(short_one), std::nullopt);
  world.Pass(absl::Milliseconds(1));
  EXPECT_THAT(group.readers[0].AnswerTo(short_one),
              Optional(Refused(Code::kDeadlineExceeded, "NOT_READY")));
  EXPECT_EQ(group.readers[0].AnswerTo(long_one), std::nullopt);
  EXPECT_EQ(world.delivery.NextTick(), world.now + absl::Seconds(2));
  group.PushSteps(0, 1);
  EXPECT_THAT(group.readers[0].AnswerTo(long_one), Optional(IsOkStatus()));
  EXPECT_THAT(group.readers[0].AnswerTo(patient), Optional(IsOkStatus()));
  world.Pass(absl::Seconds(10));
  EXPECT_THAT(group.readers[0].box().answers, testing::SizeIs(1));
}

TEST(DeliveryDeadline, NamesTheLoaderThatIsWaitedForAndSinceWhen) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 4);
  group.Start();
  group.PushSteps(0, 3);
  world.Pass(absl::Seconds(36));
  const std::string text = DeadlineText(group.readers[0], world, 3);
  EXPECT_THAT(text, HasSubstr("waiting for train/3 from loader 3"));
  EXPECT_THAT(text, HasSubstr("41 s"));
  group.loaders[3].Disconnect();
  EXPECT_THAT(DeadlineText(group.readers[0], world, 3), HasSubstr("no connection"));
}

TEST(DeliveryDeadline, NamesTheStepThatHoldsUpTheOneAskedFor) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.Start();
  group.loaders[1].PushSteps(1, 2);
  EXPECT_THAT(DeadlineText(group.readers[0], world, 1), HasSubstr("train/0 from loader 0"));
}

TEST(DeliveryDeadline, NamesTheRanksThatHaveNotOpened) {
  DeliveryWorld world;
  ScriptedGroup group(world, 4, 1);
  group.readers[0].Start();
  group.readers[2].Start();
  group.loaders[0].Start();
  const std::string text = DeadlineText(group.readers[0], world, 0);
  EXPECT_THAT(text, HasSubstr("ranks 1, 3"));
  EXPECT_THAT(text, HasSubstr("generation 1"));
}

TEST(DeliveryDeadline, NamesTheLoadersThatHaveNotCome) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 3);
  group.readers[0].Start();
  EXPECT_THAT(DeadlineText(group.readers[0], world, 0), HasSubstr("any loader of train"));
  group.loaders[1].Start();
  EXPECT_THAT(DeadlineText(group.readers[0], world, 0), HasSubstr("loaders 0, 2 of 3"));
}

TEST(DeliveryDeadline, NamesTheReaderThatFillsTheWindow) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 1);
  group.Start();
  group.PushSteps(0, 4);
  const std::string text = DeadlineText(group.readers[0], world, 4);
  EXPECT_THAT(text, HasSubstr("of rank"));
  EXPECT_THAT(text, HasSubstr("train/0"));
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_THAT(group.readers[0].Get(step), Optional(IsOkStatus()));
  }
  ASSERT_THAT(group.readers[0].Commit(3), IsOkStatus());
  EXPECT_THAT(DeadlineText(group.readers[0], world, 4), HasSubstr("r1 of rank 1"));
}

TEST(DeliveryDeadline, AReaderThatComesBackAsksAgain) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.readers[0].Ask(WithDeadline(0, absl::Seconds(1)));
  const PeerId old = group.readers[0].peer;
  group.readers[0].Disconnect();
  ASSERT_THAT(group.readers[0].Attach(), IsOkStatus());
  world.Pass(absl::Seconds(2));
  EXPECT_THAT(world.BoxOf(old).answers, IsEmpty()) << "nobody is there";
  EXPECT_EQ(group.View().readers.at(0).wants, 0);
}

// --- drain

TEST(DeliveryDrain, TakesNothingNewAndServesWhatIsComplete) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 3);
  const size_t credits = group.loaders[0].credits().size();
  world.delivery.Drain(world.now);
  world.Deliver();
  EXPECT_EQ(group.loaders[0].box().drains, 1);
  ScriptedGroup other(world, 1, 1, {kTrain}, "h");
  for (const absl::Status& status : {other.readers[0].Open().status(), other.loaders[0].Hello(),
                                     group.readers[0].Open().status()}) {
    EXPECT_THAT(status, Refused(Code::kUnavailable, "DRAINING"));
    EXPECT_TRUE(DetailsOf(status)->retry_after.has_value());
  }
  group.Consume(0, 3);
  EXPECT_EQ(group.loaders[0].credits().size(), credits) << "no credit any more";
  EXPECT_THAT(group.loaders[0].Push({.step = 3}), Optional(IsOkStatus())) << "one that was given";
  EXPECT_THAT(group.readers[0].Get(3), Optional(IsOkStatus()));
  EXPECT_THAT(group.readers[0].EndOf(group.readers[0].Close()), Optional(IsOkStatus()));
}

TEST(DeliveryAway, ACallForOneStepEndsWithTheGenerationToo) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 1);
  ScriptedReader& reader = group.readers[0];
  const PeerId call = world.Connect();
  ASSERT_TRUE(world.delivery.Attach(call, reader.name(), /*lasting=*/false, world.now).ok());
  world.delivery.Want(call, Want{1, {kTrain, 0, 0}}, world.now);
  world.Deliver();
  ASSERT_EQ(world.BoxOf(call).shards.size(), 1u) << "it is being sent, and holds memory";
  reader.open.generation = 2;
  reader.Start();
  ASSERT_EQ(world.BoxOf(call).ends.size(), 1u);
  EXPECT_THAT(world.BoxOf(call).ends[0], Refused(Code::kAborted, "STALE_GENERATION"));
}

TEST(DeliveryAway, ACallForOneStepEndsWithItsProcessToo) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& reader = group.readers[0];
  const PeerId call = world.Connect(), over = world.Connect();
  for (const PeerId peer : {call, over}) {
    ASSERT_TRUE(world.delivery.Attach(peer, reader.name(), /*lasting=*/false, world.now).ok());
  }
  world.Disconnect(over);
  reader.open.incarnation = 2;
  reader.Start();
  ASSERT_EQ(world.BoxOf(call).ends.size(), 1u);
  EXPECT_THAT(world.BoxOf(call).ends[0], Refused(Code::kAborted, "STALE_INCARNATION"));
  EXPECT_EQ(world.BoxOf(over).ends.size(), 0u);
}

TEST(DeliveryAway, AReaderHasMoreWhileACompleteStepWasNotSent) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  const auto has_more = [&] { return world.delivery.HasMore(group.readers[0].peer); };
  EXPECT_FALSE(has_more());
  group.PushSteps(0, 2);
  EXPECT_TRUE(has_more());
  ASSERT_THAT(group.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_TRUE(has_more());
  ASSERT_THAT(group.readers[0].Get(1), Optional(IsOkStatus()));
  EXPECT_FALSE(has_more()) << "committed or not";
  EXPECT_FALSE(world.delivery.HasMore(group.loaders[0].peer));
}

}  // namespace
}  // namespace cpshard
