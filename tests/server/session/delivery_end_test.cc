// The end of a data stream: agreed by all loaders, the same for all ranks.
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

testing::Matcher<std::optional<absl::Status>> EndsHere() {
  return Optional(Refused(Code::kOutOfRange, "END_OF_STREAM"));
}

TEST(DeliveryEnd, IsAgreedWhenAllLoadersHaveDeclaredIt) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.Start();
  group.PushSteps(0, 2);
  const uint64_t early = group.readers[0].Ask(3);
  EXPECT_THAT(group.loaders[1].End(3), IsOkStatus());
  EXPECT_EQ(group.readers[0].AnswerTo(early), std::nullopt) << "one of two";
  EXPECT_EQ(group.View().streams.at(0).end_step, std::nullopt);
  group.PushSteps(2, 3);
  EXPECT_THAT(group.loaders[0].End(3), IsOkStatus());
  EXPECT_EQ(group.View().streams.at(0).end_step, 3);
  EXPECT_THAT(group.readers[0].AnswerTo(early), EndsHere());
  for (ScriptedReader& reader : group.readers) {
    EXPECT_THAT(reader.Get(2), Optional(IsOkStatus()));
    for (const int64_t step : {3, 4, 1000}) {
      const auto answer = reader.Get(step);
      ASSERT_THAT(answer, EndsHere());
      EXPECT_EQ(DetailsOf(*answer)->values.at("end_step"), "3");
      EXPECT_THAT(std::string(answer->message()), HasSubstr(kTrain));
    }
  }
}

TEST(DeliveryEnd, IsAnAnswerToOneRequestAndNotTheEndOfTheCall) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ScriptedReader& reader = group.readers[0];
  const uint64_t inside = reader.Ask(1), at = reader.Ask(2), beyond = reader.Ask(3);
  ASSERT_THAT(group.loaders[0].End(2), IsOkStatus());
  EXPECT_THAT(reader.AnswerTo(at), EndsHere());
  EXPECT_THAT(reader.AnswerTo(beyond), EndsHere());
  EXPECT_EQ(reader.AnswerTo(inside), std::nullopt);
  group.PushSteps(0, 2);
  EXPECT_THAT(reader.AnswerTo(inside), Optional(IsOkStatus()));
  EXPECT_THAT(reader.box().ends, IsEmpty());
}

TEST(DeliveryEnd, NeedsNoCredit) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  EXPECT_THAT(group.loaders[0].End(100), IsOkStatus());
  EXPECT_EQ(group.View().streams.at(0).end_step, 100);
  DeliveryWorld empty;
  ScriptedGroup nothing(empty, 2, 1);
  nothing.Start();
  EXPECT_THAT(nothing.loaders[0].End(0), IsOkStatus());
  for (ScriptedReader& reader : nothing.readers) EXPECT_THAT(reader.Get(0), EndsHere());
}

TEST(DeliveryEnd, NoCreditIsGivenBeyondADeclaredEnd) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.Start();
  ASSERT_THAT(group.loaders[0].End(5), IsOkStatus());
  group.PushSteps(0, 4);
  group.Consume(0, 4);
  EXPECT_THAT(group.loaders[0].credits(), ElementsAre(0, 2, 4));
  EXPECT_THAT(group.loaders[1].credits(), ElementsAre(1, 3));
  EXPECT_EQ(world.delivery.counters().used_bytes, 40 + kStepBytes);
}

TEST(DeliveryEnd, OfTwoValuesNoneIsTaken) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.Start();
  group.PushSteps(0, 1);
  const uint64_t waits = group.readers[1].Ask(2);
  ASSERT_THAT(group.loaders[0].End(3), IsOkStatus());
  const absl::Status refused = group.loaders[1].End(4);
  EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "ENDS_DIFFER"));
  EXPECT_EQ(DetailsOf(refused)->values.at("yours"), "4");
  EXPECT_EQ(DetailsOf(refused)->values.at("theirs"), "3");
  EXPECT_THAT(std::string(refused.message()), HasSubstr(kTrain));
  EXPECT_EQ(world.alerts.size(), 1u);
  EXPECT_THAT(group.readers[1].AnswerTo(waits),
              Optional(Refused(Code::kFailedPrecondition, "ENDS_DIFFER")));
  EXPECT_THAT(group.readers[0].Get(3), Optional(Refused(Code::kFailedPrecondition, "ENDS_DIFFER")));
}

TEST(DeliveryEnd, ALoaderThatChangesItsMindIsTwoValuesToo) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ASSERT_THAT(group.loaders[0].End(3), IsOkStatus());
  EXPECT_THAT(group.loaders[0].End(3), IsOkStatus()) << "the same again";
  EXPECT_THAT(group.loaders[0].End(2), Refused(Code::kFailedPrecondition, "ENDS_DIFFER"));
}

TEST(DeliveryEnd, ABatchAtOrBeyondADeclaredEndIsRefused) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 2);
  group.Start();
  ASSERT_THAT(group.loaders[0].End(2), IsOkStatus());
  for (const int64_t step : {2, 3}) {
    const auto ack = group.loaders[step % 2].Push({.step = step});
    ASSERT_TRUE(ack.has_value());
    EXPECT_THAT(*ack, Refused(Code::kFailedPrecondition, "END_OF_STREAM"));
    EXPECT_EQ(DetailsOf(*ack)->values.at("end_step"), "2");
    EXPECT_THAT(std::string(ack->message()), HasSubstr("train/" + std::to_string(step)));
  }
}

TEST(DeliveryEnd, IsNotBeforeWhatHasLanded) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  ASSERT_THAT(group.loaders[0].Push({.step = 2}), Optional(IsOkStatus()));
  const absl::Status refused = group.loaders[0].End(2);
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("train/2"));
}

TEST(DeliveryEnd, IsVoidAfterASeekAndDeclaredAnew) {
  DeliveryWorld world;
  ScriptedGroup group(world, 2, 2);
  group.Start();
  group.PushSteps(0, 3);
  for (ScriptedLoader& loader : group.loaders) ASSERT_THAT(loader.End(3), IsOkStatus());
  for (ScriptedReader& reader : group.readers) {
    reader.open.generation = 2;
    reader.open.fingerprint = "longer data";
  }
  for (ScriptedReader& reader : group.readers) reader.Start();
  EXPECT_EQ(group.readers[0].Get(3), std::nullopt);
  ASSERT_THAT(group.loaders[0].End(4), IsOkStatus());
  EXPECT_EQ(group.readers[1].Get(4), std::nullopt) << "the other one has not yet";
  ASSERT_THAT(group.loaders[1].End(4), IsOkStatus());
  for (ScriptedReader& reader : group.readers) EXPECT_THAT(reader.Get(4), EndsHere());
  group.PushSteps(0, 4);
  EXPECT_THAT(group.readers[0].steps(), ElementsAre(3));
}

TEST(DeliveryEnd, OutlivesALoaderAndAGenerationThatKeepsTheWindow) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 3);
  ASSERT_THAT(group.loaders[0].End(3), IsOkStatus());
  group.loaders[0].Disconnect();
  group.loaders[0].hello.incarnation = 2;
  group.loaders[0].Start();
  EXPECT_THAT(group.readers[0].Get(3), EndsHere());
  EXPECT_THAT(group.loaders[0].End(3), IsOkStatus());
  group.readers[0].open.generation = 2;
  group.readers[0].Start();
  EXPECT_THAT(group.loaders[0].End(3), IsOkStatus());
  EXPECT_THAT(group.readers[0].Get(3), EndsHere());
  EXPECT_THAT(group.readers[0].Get(2), Optional(IsOkStatus()));
}

TEST(DeliveryEnd, AReaderMayOpenAtTheEndAndNotBeyondIt) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  group.PushSteps(0, 2);
  ASSERT_THAT(group.loaders[0].End(2), IsOkStatus());
  group.Consume(0, 2);
  StreamOf(group.readers[0].open).next_step = 3;
  StreamOf(group.readers[0].open).received = 2;
  const absl::Status refused = group.readers[0].Open().status();
  EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "END_OF_STREAM"));
  StreamOf(group.readers[0].open).next_step = 2;
  StreamOf(group.readers[0].open).received = 1;
  group.readers[0].Start();
  EXPECT_THAT(group.readers[0].Get(2), EndsHere());
}

TEST(DeliveryEnd, OfOneDataStreamIsNotThatOfAnother) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1, {kTrain, kVal});
  group.Start();
  ASSERT_THAT(group.loaders[0].End(1, kVal), IsOkStatus());
  group.PushSteps(0, 2, kTrain);
  EXPECT_THAT(group.readers[0].Get(1, kVal), EndsHere());
  EXPECT_THAT(group.readers[0].Get(1, kTrain), Optional(IsOkStatus()));
}

}  // namespace
}  // namespace cpshard
