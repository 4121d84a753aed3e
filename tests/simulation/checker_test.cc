// The checker on histories written by hand: rules that no planted fault of the server breaks.
#include "tests/simulation/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/simulation/random.h"

namespace cpshard::simulation {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One group of one reader (process 0) and one loader (process 1) with a train stream of 4 steps.
class Histories : public ::testing::Test {
 protected:
  Histories() {
    Job job{.group = "g", .number = 7};
    job.streams.push_back({.name = "train", .length = 4, .max_step_bytes = 100});
    job.items = ItemsOf(job);
    history_.jobs.push_back(job);
    history_.processes.push_back(
        {.reader = true, .incarnation = 1, .name = "r", .generation = 1, .cp_size = 1});
    history_.processes.push_back({.reader = false, .rewinds = false});
    history_.budget_bytes = 1000;
    Add(Kind::kServerStarted, -1);
  }

  Record& Add(Kind kind, int process, int64_t step = 0) {
    Record& record = history_.records.emplace_back();
    record.kind = kind;
    record.instance = 1;
    record.process = process;
    record.stream = process < 0 ? -1 : 0;
    record.step = step;
    return record;
  }

  Record& Open(int64_t next_step) {
    Record& record = Add(Kind::kOpened, 0);
    record.generation = 1;
    record.asked = {{.name = "train", .next_step = next_step, .received = next_step - 1}};
    if (next_step > 0) record.asked[0].resume = ResumeAt(history_.jobs[0], 0, 0, next_step);
    return record;
  }

  Record& Told(int64_t generation, int64_t released, int64_t from_step) {
    Record& record = Add(Kind::kTold, 1, released);
    record.generation = generation;
    record.value = from_step;
    return record;
  }

  std::vector<std::string> Rules() const {
    std::vector<std::string> rules;
    for (const Violation& violation : Check(history_)) rules.push_back(violation.rule);
    return rules;
  }

  History history_;
};

TEST_F(Histories, AnAnswerBeginsBehindWhatTheSameCallWasSentInTheSameEpoch) {
  history_.jobs[0].streams[0].most_microbatches = 3;
  int64_t step = 0;
  while (Microbatches(history_.jobs[0], 0, 0, step) != 3) ++step;
  Open(step);
  const auto ask = [&](uint64_t id, int64_t from) {
    Record& want = Add(Kind::kWanted, 0, step);
    want.call = 1;
    want.id = id;
    want.microbatch = from;
  };
  const auto deliver = [&](uint64_t id, int64_t microbatch, int64_t epoch) {
    Record& record = Add(Kind::kDelivered, 0, step);
    record.call = 1;
    record.id = id;
    record.microbatch = microbatch;
    record.epoch = epoch;
    record.generation = record.cp_size = record.num_loaders = 1;
    record.content = record.digest = Content(history_.jobs[0], 0, 0, step, microbatch, 0);
  };
  ask(1, 0);
  deliver(1, 0, 5);
  ask(2, 1);
  deliver(2, 1, 5);
  EXPECT_THAT(Rules(), IsEmpty());
  ask(3, 2);
  deliver(3, 2, 6);  // of another epoch nothing was sent
  EXPECT_THAT(Rules(), ElementsAre("I3"));
  history_.records.back().epoch = 5;
  EXPECT_THAT(Rules(), IsEmpty());
  ask(4, 0);
  deliver(4, 1, 5);  // it did not say that microbatch 0 is there
  EXPECT_THAT(Rules(), ElementsAre("I3"));
}

TEST_F(Histories, ACorrectCommitMayNotBeRefused) {
  Open(0);
  Add(Kind::kCommitted, 0, 0);
  EXPECT_THAT(Rules(), IsEmpty());
  Add(Kind::kCommitted, 0, 1).code = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(Rules(), ElementsAre("commit"));
}

TEST_F(Histories, ACommitOfAnOldGenerationMayBeRefused) {
  Open(0);
  history_.processes.push_back(
      {.reader = true, .incarnation = 2, .name = "r", .generation = 2, .cp_size = 1});
  Record& newer = Open(0);
  newer.process = 2;
  newer.generation = 2;
  Add(Kind::kCommitted, 0, 0).code = absl::StatusCode::kAborted;
  EXPECT_THAT(Rules(), IsEmpty());
}

TEST_F(Histories, ALiveReaderIsNotToldThatItsStepIsGone) {
  Open(2);
  Record& want = Add(Kind::kWanted, 0, 2);
  want.call = want.id = 1;
  Record& status = Add(Kind::kStatus, 0);
  status.call = status.id = 1;
  status.code = absl::StatusCode::kOutOfRange;
  status.reason = "BELOW_FLOOR";
  EXPECT_THAT(Rules(), ElementsAre("refused"));
}

TEST_F(Histories, AReaderThatDoesNotGoBackIsNoZombie) {
  Open(2);
  Record& again = Open(2);
  again.code = absl::StatusCode::kAborted;
  again.reason = "ZOMBIE";
  EXPECT_THAT(Rules(), ElementsAre("refused"));
  history_.records.back().asked[0].next_step = 1;  // it does
  history_.records.back().asked[0].resume.reset();
  EXPECT_THAT(Rules(), IsEmpty());
}

TEST_F(Histories, NobodyIsStaleWithoutAHigherGeneration) {
  Record& open = Open(0);
  open.code = absl::StatusCode::kAborted;
  open.reason = "STALE_GENERATION";
  EXPECT_THAT(Rules(), ElementsAre("refused"));
}

TEST_F(Histories, StepsThatWereReleasedAreNotAskedForInTheSameGeneration) {
  Told(1, 2, 3);
  Told(1, 2, 2);
  EXPECT_THAT(Rules(), IsEmpty());
  Told(1, 0, 1);
  EXPECT_THAT(Rules(), ElementsAre("loader"));
}

TEST_F(Histories, AnotherGenerationMayAskForWhatWasReleased) {
  Told(1, 2, 3);
  Told(2, 0, 1);
  EXPECT_THAT(Rules(), IsEmpty());
}

TEST_F(Histories, ASourceThatCannotGoBackIsAskedToOnlyWhereItsPassBegins) {
  Add(Kind::kRewound, 1, 0);
  EXPECT_THAT(Rules(), IsEmpty());
  Add(Kind::kRewound, 1, 2).last = true;
  EXPECT_THAT(Rules(), ElementsAre("loader"));
}

TEST_F(Histories, ACheckpointHasTheStatesBehindItsLastStep) {
  Record& exact = Add(Kind::kCheckpoint, 0, 2);
  exact.asked = {{.name = "train", .next_step = 2, .resume = ResumeAt(history_.jobs[0], 0, 0, 2)}};
  EXPECT_THAT(Rules(), IsEmpty());
  history_.records.back().asked[0].resume = ResumeAt(history_.jobs[0], 0, 0, 3);
  EXPECT_THAT(Rules(), ElementsAre("I5"));
}

TEST_F(Histories, AStepThatIsNotDueDoesNotReachTheTrainer) {
  const auto train = [&](int64_t step) {
    Record& record = Add(Kind::kTrained, 0, step);
    record.microbatch = 1;
    record.totals = StepTotals{.num_microbatches = 1};
    record.content = Mix(0 ^ Content(history_.jobs[0], 0, 0, step, 0, 0));
  };
  train(0);
  train(1);
  EXPECT_THAT(Rules(), IsEmpty());
  train(3);
  EXPECT_THAT(Rules(), ElementsAre("I5"));
}

TEST_F(Histories, MoreBytesThanAreCountedAreFound) {
  Record& memory = Add(Kind::kMemory, -1);
  memory.used = memory.live = 1000;
  EXPECT_THAT(Rules(), IsEmpty());
  memory.used = 900;
  EXPECT_THAT(Rules(), ElementsAre("I6"));
}

}  // namespace
}  // namespace cpshard::simulation
