// What a layout puts out: replaced, dropped, passed on whole, and in which order.
#include "core/plan/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Three tensors a, b, c and two scalars p, q.
BatchSpec Batch() {
  BatchSpec spec;
  spec.tensors = {{"a", DType::kI64, {2}}, {"b", DType::kF32, {3, 4}}, {"c", DType::kBool, {}}};
  spec.scalars = {{"p", int64_t{1}}, {"q", std::string("two")}};
  return spec;
}

StreamPlan Own(const std::string& name) { return {.name = name, .dtype = DType::kI16}; }

ShardPlan Moved(Outputs& outputs) {
  ShardPlan plan;
  outputs.MoveInto(plan);
  return plan;
}

std::vector<std::string> Names(const ShardPlan& plan) {
  std::vector<std::string> names;
  for (const StreamPlan& stream : plan.streams) names.push_back(stream.name);
  for (const ScalarPlan& scalar : plan.scalars) names.push_back(scalar.name);
  return names;
}

TEST(Outputs, WhatNobodyNamedIsPassedOnWhole) {
  const BatchSpec spec = Batch();
  Outputs outputs(spec);
  const ShardPlan plan = Moved(outputs);
  ASSERT_THAT(Names(plan), ElementsAre("a", "b", "c", "p", "q"));
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    StreamPlan whole{spec.tensors[i].name, spec.tensors[i].dtype, spec.tensors[i].dims};
    whole.value.from = ViewOf{spec.tensors[i].name};
    whole.extent = Extent::kWhole;
    EXPECT_EQ(plan.streams[i], whole);
  }
  EXPECT_EQ(ScalarsOf(plan, 0), spec.scalars);
}

TEST(Outputs, AStreamStandsInThePlaceOfTheEntryOfItsNameAndNewOnesComeLast) {
  const BatchSpec spec = Batch();
  Outputs outputs(spec);
  outputs.Add(Own("y"));
  outputs.Add(Own("x"));
  outputs.Add(Own("b"));
  outputs.AddScalar("z", {int64_t{9}});
  outputs.AddScalar("p", {int64_t{8}});
  const ShardPlan plan = Moved(outputs);
  EXPECT_THAT(Names(plan), ElementsAre("a", "b", "c", "y", "x", "p", "q", "z"));
  EXPECT_EQ(plan.streams[1], Own("b"));
  EXPECT_EQ(plan.scalars[0].values, (std::vector<Scalar>{int64_t{8}}));
}

TEST(Outputs, ADroppedEntryIsNotThereUnlessItIsMadeAnew) {
  const BatchSpec spec = Batch();
  Outputs outputs(spec);
  outputs.Drop("a");
  outputs.Drop("q");
  outputs.Drop("c");
  outputs.Drop("of no batch");
  outputs.Add(Own("c"));
  EXPECT_THAT(Names(Moved(outputs)), ElementsAre("b", "c", "p"));
}

// One name is one entry, whatever its kind was (spec.h).
TEST(Outputs, AnEntryMayBecomeOneOfTheOtherKind) {
  const BatchSpec spec = Batch();
  Outputs outputs(spec);
  outputs.Add(Own("p"));
  outputs.AddScalar("a", {true});
  const ShardPlan plan = Moved(outputs);
  EXPECT_THAT(Names(plan), ElementsAre("b", "c", "p", "q", "a"));
  EXPECT_EQ(plan.streams.size(), 3u);
}

TEST(Outputs, EntriesThatNobodyNamedMayBeDropped) {
  const BatchSpec spec = Batch();
  Outputs outputs(spec);
  outputs.DropOthers();
  outputs.Add(Own("b"));
  outputs.Add(Own("new"));
  outputs.AddScalar("q", {true});
  EXPECT_THAT(Names(Moved(outputs)), ElementsAre("b", "new", "q"));
}

TEST(Outputs, OfAnEmptyBatchAreThoseThatWereAdded) {
  const BatchSpec spec;
  Outputs none(spec);
  EXPECT_THAT(Names(Moved(none)), IsEmpty());
  Outputs some(spec);
  some.Add(Own("x"));
  EXPECT_THAT(Names(Moved(some)), ElementsAre("x"));
}

TEST(Outputs, AScalarHasOneValueForAllRanksOrOneForEach) {
  const BatchSpec spec;
  Outputs outputs(spec);
  outputs.AddScalar("cp_size", {int64_t{3}});
  outputs.AddScalar("cp_rank", {int64_t{0}, int64_t{1}, int64_t{2}});
  const ShardPlan plan = Moved(outputs);
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ScalarsOf(plan, rank),
              (std::vector<ScalarEntry>{{"cp_size", int64_t{3}}, {"cp_rank", rank}}));
  }
}

}  // namespace
}  // namespace cpshard
