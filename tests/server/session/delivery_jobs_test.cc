// Groups of a job that have to pad alike (D14).
#include <gtest/gtest.h>

#include "proto/error_details.h"
#include "server/session/job.h"
#include "tests/server/session/delivery_peers.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;
using Code = absl::StatusCode;

// Two groups of one rank and one loader each.
struct Job {
  explicit Job(const std::vector<std::string>& streams = {kTrain}) : streams_(streams) {
    for (ScriptedGroup* group : {&a, &b}) {
      group->readers[0].open.job = "j";
      group->readers[0].open.job_groups = 2;
    }
  }
  void Start() {
    a.Start();
    b.Start();
  }
  static void Push(ScriptedGroup& group, int64_t step, int64_t need,
                   const std::string& stream = kTrain) {
    Item item{.step = step, .stream = stream};
    item.row_need = need;
    ASSERT_THAT(group.loaders[0].Push(item), Optional(IsOkStatus()));
  }
  static std::optional<int64_t> LastLength(const ScriptedGroup& group) {
    return group.readers[0].box().shards.back().min_padded_len;
  }

  const std::vector<std::string> streams_;
  DeliveryWorld world;
  ScriptedGroup a{world, 1, 1, streams_, "a"}, b{world, 1, 1, streams_, "b"};
};

TEST(DeliveryJobs, AStepWaitsForAllGroupsAndIsPaddedToTheLargestNeed) {
  Job job;
  job.Start();
  const uint64_t waits = job.a.readers[0].Ask(0);
  Job::Push(job.a, 0, 24);
  EXPECT_EQ(job.a.readers[0].AnswerTo(waits), std::nullopt);
  Job::Push(job.b, 0, 40);
  EXPECT_THAT(job.a.readers[0].AnswerTo(waits), Optional(IsOkStatus()))
      << "without a word of its own";
  EXPECT_EQ(Job::LastLength(job.a), 40);
  ASSERT_THAT(job.b.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.b), 40);
  Job::Push(job.a, 1, 32);
  Job::Push(job.b, 1, 16);
  ASSERT_THAT(job.b.readers[0].Get(1), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.b), 32) << "per step";
}

TEST(DeliveryJobs, MicrobatchesAreNotReleasedEarly) {
  Job job;
  job.Start();
  Item first{.step = 0, .last = false};
  first.totals = StepTotals{2, 14, 18};
  for (ScriptedGroup* group : {&job.a, &job.b}) {
    ASSERT_THAT(group->loaders[0].Push(first), Optional(IsOkStatus()));
    group->readers[0].Ask(0);
  }
  EXPECT_EQ(job.a.readers[0].box().shards.size(), 0u) << "what the rest needs is not known";
  for (ScriptedGroup* group : {&job.a, &job.b}) {
    ASSERT_THAT(group->loaders[0].Push({.step = 0, .microbatch = 1}), Optional(IsOkStatus()));
  }
  EXPECT_EQ(job.a.readers[0].box().shards.size(), 2u);
}

TEST(DeliveryJobs, GroupsThatHaveNotComeYetAreWaitedFor) {
  Job job;
  job.a.Start();
  Job::Push(job.a, 0, 24);
  Want want;
  want.at.stream = kTrain;
  want.timeout_ms = 1000;
  const uint64_t waits = job.a.readers[0].Ask(want);
  job.world.Pass(absl::Seconds(1));
  const auto answer = job.a.readers[0].AnswerTo(waits);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(*answer, Refused(Code::kDeadlineExceeded, "NOT_READY"));
  EXPECT_THAT(std::string(answer->message()), HasSubstr("job j"));
}

TEST(DeliveryJobs, AGroupWithoutAJobIsPaddedForItself) {
  DeliveryWorld world;
  ScriptedGroup group(world, 1, 1);
  group.Start();
  Job::Push(group, 0, 24);
  ASSERT_THAT(group.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(group), std::nullopt);
}

TEST(DeliveryJobs, AGroupThatHasEndedLeavesAndIsNotWaitedForAnyMore) {
  Job job;
  job.Start();
  Job::Push(job.a, 0, 24);
  const uint64_t waits = job.a.readers[0].Ask(0);
  ASSERT_THAT(job.b.readers[0].EndOf(job.b.readers[0].Close()), Optional(IsOkStatus()));
  EXPECT_THAT(job.a.readers[0].AnswerTo(waits), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.a), 24);
}

TEST(DeliveryJobs, AGroupIsNotWaitedForBehindItsEnd) {
  Job job;
  job.Start();
  for (ScriptedGroup* group : {&job.a, &job.b}) Job::Push(*group, 0, 24);
  Job::Push(job.a, 1, 8);
  const uint64_t waits = job.a.readers[0].Ask(1);
  EXPECT_EQ(job.a.readers[0].AnswerTo(waits), std::nullopt);
  ASSERT_THAT(job.b.loaders[0].End(1), IsOkStatus());
  EXPECT_THAT(job.a.readers[0].AnswerTo(waits), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.a), 8);
}

TEST(DeliveryJobs, TheNextRunOfAJobBeginsAtStepZero) {
  Job job;
  for (int64_t generation = 1; generation <= 2; ++generation) {
    for (ScriptedGroup* group : {&job.a, &job.b}) {
      group->readers[0].open.generation = generation;
      group->readers[0].Start();
      group->loaders[0].Start();
    }
    for (int64_t step = 0; step < 5; ++step) {
      Job::Push(job.a, step, 8 * generation);
      Job::Push(job.b, step, 16 * generation);
      for (ScriptedGroup* group : {&job.a, &job.b}) {
        group->Consume(step, step + 1);
        EXPECT_EQ(Job::LastLength(*group), 16 * generation) << step;
      }
    }
    for (ScriptedGroup* group : {&job.a, &job.b}) group->readers[0].Close();
    EXPECT_TRUE(job.a.View().ended);
  }
}

TEST(DeliveryJobs, AStepThatWasHandedOutKeepsItsLengthWhateverAGroupDoesMeanwhile) {
  Job job;
  job.Start();
  Job::Push(job.a, 0, 8);
  Job::Push(job.b, 0, 64);
  ASSERT_THAT(job.a.readers[0].Get(0), Optional(IsOkStatus()));
  ASSERT_EQ(Job::LastLength(job.a), 64);
  job.b.readers[0].open.generation = 2;
  job.b.readers[0].open.fingerprint = "shorter rows";
  job.b.readers[0].Start();
  Job::Push(job.b, 0, 16);
  ASSERT_THAT(job.a.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.a), 64);
  job.b.readers[0].Close();
  ASSERT_THAT(job.a.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.a), 64);
}

TEST(DeliveryJobs, AGroupThatKeepsItsWindowKeepsItsNeeds) {
  Job job;
  job.Start();
  for (int64_t step = 0; step < 2; ++step) Job::Push(job.b, step, 64);
  job.b.readers[0].open.generation = 2;
  job.b.readers[0].Start();
  Job::Push(job.a, 0, 8);
  ASSERT_THAT(job.a.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.a), 64);
  ASSERT_THAT(job.b.readers[0].Get(0), Optional(IsOkStatus()));
  EXPECT_EQ(job.b.loaders[0].position().from_step, 2) << "nothing came again";
}

TEST(DeliveryJobs, EveryPassIsAgreedOnAnew) {
  Job job({kVal});
  job.Start();
  for (int64_t pass = 0; pass < 3; ++pass) {
    for (ScriptedGroup* group : {&job.a, &job.b}) group->readers[0].Ask(0, kVal, pass);
    Job::Push(job.a, 0, 8 + pass, kVal);
    Job::Push(job.b, 0, 16 + pass, kVal);
    for (ScriptedGroup* group : {&job.a, &job.b}) {
      ASSERT_EQ(group->readers[0].box().shards.size(), static_cast<size_t>(pass + 1)) << pass;
      EXPECT_EQ(Job::LastLength(*group), 16 + pass);
      ASSERT_THAT(group->loaders[0].End(1, kVal), IsOkStatus());
      ASSERT_THAT(group->readers[0].ClosePass(pass, false, kVal), IsOkStatus());
    }
  }
}

TEST(DeliveryJobs, AGroupThatHasFinishedADataStreamIsNotWaitedForInIt) {
  Job job({kTrain, kVal});
  job.Start();
  Job::Push(job.a, 0, 8, kVal);
  const uint64_t waits = job.a.readers[0].Ask(0, kVal);
  EXPECT_EQ(job.a.readers[0].AnswerTo(waits), std::nullopt);
  ASSERT_THAT(job.b.readers[0].ClosePass(0, /*finished=*/true, kVal), IsOkStatus());
  EXPECT_THAT(job.a.readers[0].AnswerTo(waits), Optional(IsOkStatus()));
}

TEST(DeliveryJobs, NorInLaterPasses) {
  Job job({kTrain, kVal});
  job.Start();
  ASSERT_THAT(job.b.readers[0].ClosePass(0, /*finished=*/true, kVal), IsOkStatus());
  for (int64_t pass = 0; pass < 3; ++pass) {
    job.a.readers[0].Ask(0, kVal, pass);
    Job::Push(job.a, 0, 8, kVal);
    EXPECT_EQ(job.a.readers[0].box().shards.size(), static_cast<size_t>(pass + 1));
    ASSERT_THAT(job.a.readers[0].ClosePass(pass, false, kVal), IsOkStatus());
  }
}

TEST(DeliveryJobs, AGroupThatStartsAnewInALaterPassIsNotWaitedForInTheEarlierOne) {
  Job job({kTrain, kVal});
  job.Start();
  ASSERT_THAT(job.b.readers[0].ClosePass(0, false, kVal), IsOkStatus());
  job.b.readers[0].open.generation = 2;
  StreamOf(job.b.readers[0].open, kVal).pass = 1;
  StreamOf(job.b.readers[0].open, kVal).closed = true;
  job.b.readers[0].Start();
  Job::Push(job.a, 0, 8, kVal);
  EXPECT_THAT(job.a.readers[0].Get(0, kVal), Optional(IsOkStatus()));
}

TEST(DeliveryJobs, AGroupThatFailedHoldsTheOthersUpUntilItsNextGeneration) {
  Job job;
  job.Start();
  Job::Push(job.a, 0, 8);
  Job::Push(job.b, 1, 8);
  EXPECT_EQ(job.b.loaders[0].Push({.step = 1, .digest = 3})->code(), Code::kFailedPrecondition);
  const uint64_t waits = job.a.readers[0].Ask(0);
  EXPECT_EQ(job.a.readers[0].AnswerTo(waits), std::nullopt);
  job.b.readers[0].open.generation = 2;
  job.b.readers[0].Start();
  Job::Push(job.b, 0, 24);
  EXPECT_THAT(job.a.readers[0].AnswerTo(waits), Optional(IsOkStatus()));
  EXPECT_EQ(Job::LastLength(job.a), 24);
}

TEST(DeliveryJobs, AnotherNumberOfGroupsThanARunningOneSaysIsRefusedWithBoth) {
  for (const int64_t wrong : {1, 3}) {
    Job job;
    job.a.Start();
    job.b.readers[0].open.job_groups = wrong;
    const absl::Status refused = job.b.readers[0].Open().status();
    EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "TERMS_DIFFER"));
    EXPECT_EQ(DetailsOf(refused)->values.at("field"), "job_groups");
    EXPECT_EQ(DetailsOf(refused)->values.at("yours"), std::to_string(wrong));
    EXPECT_EQ(DetailsOf(refused)->values.at("theirs"), "2");
    job.b.readers[0].open.job_groups = 2;
    job.b.Start();
    Job::Push(job.a, 0, 8);
    Job::Push(job.b, 0, 8);
    EXPECT_THAT(job.a.readers[0].Get(0), Optional(IsOkStatus()));
  }
}

TEST(DeliveryJobs, AJobMayStartAnewWithAnotherNumberOfGroups) {
  Job job;
  job.Start();
  job.a.readers[0].Disconnect();
  job.b.readers[0].Disconnect();
  job.a.readers[0].open.generation = 2;
  job.a.readers[0].open.job = "j";
  job.a.readers[0].open.job_groups = 3;
  EXPECT_TRUE(job.a.readers[0].Open().ok()) << "nobody of the earlier run is here";
}

TEST(Jobs, RemembersOnlySomeOfThoseThatGroupsHaveLeft) {
  Jobs jobs;
  jobs.Join("running", "a", 2);
  for (int i = 0; i < 3000; ++i) {
    const std::string job = "job " + std::to_string(i);
    jobs.Join(job, "a", 2);
    jobs.Leave(job, "a");
  }
  EXPECT_EQ(jobs.size(), Jobs::kMaxLeft);
  jobs.Add("running", "a", {kTrain, 0, 0}, {});
  jobs.Join("running", "b", 2);
  jobs.Add("running", "b", {kTrain, 0, 0}, {});
  EXPECT_TRUE(jobs.Ready("running", {kTrain, 0, 0}));
}

TEST(Jobs, ForgetsThoseFirstThatWereLeftFirst) {
  Jobs jobs;
  for (size_t i = 0; i <= Jobs::kMaxLeft; ++i) {
    const std::string job = "job " + std::to_string(9000 - i);  // a later one sorts before
    jobs.Join(job, "a", 2);
    jobs.Leave(job, "a");
    jobs.Leave(job, "a");  // again, which changes nothing
  }
  ASSERT_EQ(jobs.size(), Jobs::kMaxLeft);
  for (const auto& [job, is_known] :
       {std::pair("job 9000", false), std::pair("job 8999", true), std::pair("job 7976", true)}) {
    jobs.Join(job, "b", 2);
    jobs.Add(job, "b", {kTrain, 0, 0}, {});
    EXPECT_EQ(jobs.Ready(job, {kTrain, 0, 0}), is_known) << job;
  }
}

}  // namespace
}  // namespace cpshard
