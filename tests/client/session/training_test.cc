// Loaders, a server and ranks, whatever restarts in between: every rank gets what the layout makes
// of the data set, every step once, in order.
#include <atomic>
#include <random>

#include "absl/status/status.h"
#include "tests/client/session/training.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kAll = 1'000'000;

class Training : public TrainingTest {};

TEST_F(Training, EveryRankGetsItsShardsOfEveryStepAndTheEndAtTheSameStep) {
  Serve();
  StartLoaders(2, {{"train", 13}}, /*microbatches=*/2);
  std::vector<std::thread> trainers;
  for (int64_t r = 0; r < kRanks; ++r) {
    trainers.emplace_back([this, r] {
      const auto rank = OpenRank(OptionsOf(r, kRanks));
      EXPECT_EQ(Read(*rank, "train", r, kRanks, 0, kAll, 2, [](int64_t) {}), 13);
      EXPECT_EQ(rank->State().streams["train"].next_step, 13);
      rank->ClosePass("train", /*finished=*/true);
      const absl::Status closed = rank->Close(absl::Seconds(20));
      EXPECT_TRUE(closed.ok()) << closed;
      EXPECT_EQ(rank->stats().opens, 1);
      EXPECT_EQ(rank->stats().steps, 13);
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  for (const auto& loader : loaders_) {
    EXPECT_TRUE(loader->Wait().ok()) << loader->Wait();
    EXPECT_EQ(loader->stats().connects, 1);
    EXPECT_EQ(loader->stats().pushed_again, 0);
    EXPECT_EQ(loader->stats().held_bytes, 0);
  }
  EXPECT_THAT(sources_[0]->made(), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
  EXPECT_THAT(sources_[1]->made(), ElementsAre(1, 3, 5, 7, 9, 11, 13));
}

TEST_F(Training, AServerThatIsKilledAndComesBackIsSeenAsTime) {
  Serve(/*tcp=*/true);
  StartLoaders(4, {{"train", 50}});
  std::atomic<int64_t> furthest = -1;
  std::vector<std::thread> trainers;
  for (int64_t r = 0; r < kRanks; ++r) {
    trainers.emplace_back([&, r] {
      const auto rank = OpenRank(OptionsOf(r, kRanks));
      const int64_t steps = Read(*rank, "train", r, kRanks, 0, kAll, 1, [&](int64_t step) {
        furthest = std::max<int64_t>(furthest, step);
      });
      EXPECT_EQ(steps, 50);
      EXPECT_GE(rank->stats().opens, 2);
      rank->ClosePass("train", /*finished=*/true);
      rank->Close(absl::Seconds(20)).IgnoreError();
    });
  }
  for (const int64_t kill_at : {12, 30}) {
    while (furthest < kill_at) absl::SleepFor(absl::Milliseconds(1));
    server_->Kill();
    absl::SleepFor(absl::Milliseconds(100));
    server_->Start();
  }
  for (std::thread& trainer : trainers) trainer.join();
  // What was made once is pushed again, not made again.
  for (const auto& source : sources_) EXPECT_THAT(source->rewinds(), IsEmpty());
}

TEST_F(Training, AServerThatStopsTellsTheLoadersAndLosesNothing) {
  Serve(/*tcp=*/false, "--shutdown-seconds=2");
  TestSource source("train", 20);
  std::atomic<int> drains = 0;
  const auto loader =
      Loader::Start(server_->address(), {.group = "g", .on_drain = [&] { ++drains; }},
                    {{"train", &source}})
          .value();
  const auto rank = OpenRank(OptionsOf(0, 1));
  Read(*rank, "train", 0, 1, 0, 8, 1, [](int64_t) {});
  server_->Terminate();
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_EQ(drains, 1);
  server_->Start();
  EXPECT_EQ(Read(*rank, "train", 0, 1, 8, kAll, 1, [](int64_t) {}), 12);
  EXPECT_THAT(source.rewinds(), IsEmpty());
}

TEST_F(Training, ARankThatRestartsAloneGoesOnWithItsState) {
  Serve();
  StartLoaders(2, {{"train", 24}});
  const auto other = OpenRank(OptionsOf(1, 2));
  TrainState state;
  {
    const auto rank = OpenRank(OptionsOf(0, 2));
    Read(*rank, "train", 0, 2, 0, 5, 1, [](int64_t) {});
    state = rank->State();  // step 4 is in hand, not consumed
    EXPECT_EQ(state.streams["train"].next_step, 4);
  }
  std::thread trainer(
      [&] { EXPECT_EQ(Read(*other, "train", 1, 2, 0, kAll, 1, [](int64_t) {}), 24); });
  RankOptions options = OptionsOf(0, 2);
  options.position = state;
  const auto rank = OpenRank(options);
  EXPECT_EQ(Read(*rank, "train", 0, 2, 4, kAll, 1, [](int64_t) {}), 20);
  trainer.join();
}

TEST_F(Training, ALoaderThatIsStartedAnewGoesOnBehindItsLastState) {
  Serve();
  StartLoaders(2, {{"train", 24}});
  const auto rank = OpenRank(OptionsOf(0, 1));
  Read(*rank, "train", 0, 1, 0, 8, 1, [](int64_t) {});
  loaders_[1].reset();
  TestSource source("train", 24);
  const auto loader =
      Loader::Start(server_->address(), {.group = "g", .loader = 1, .num_loaders = 2},
                    {{"train", &source}})
          .value();
  EXPECT_EQ(Read(*rank, "train", 0, 1, 8, kAll, 1, [](int64_t) {}), 16);
  ASSERT_EQ(source.rewinds().size(), 1);
  const int64_t first = source.made().at(0);
  EXPECT_EQ(source.rewinds().at(0), absl::StrCat(first, ": after ", first - 2));
  EXPECT_THAT(sources_[0]->rewinds(), IsEmpty());
}

TEST_F(Training, ANewGenerationResumesFromACheckpointWithAnotherNumberOfRanks) {
  Serve();
  StartLoaders(2, {{"train", 20}});
  TrainState state;
  {
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int64_t r = 0; r < 4; ++r) ranks.push_back(OpenRank(OptionsOf(r, 4)));
    for (int64_t step = 0; step < 9; ++step) {
      for (int64_t r = 0; r < 4; ++r) {
        Read(*ranks[r], "train", r, 4, step, step + 1, 1, [](int64_t) {});
      }
      if (step != 5) continue;
      for (const auto& rank : ranks) rank->Consumed("train");
      const absl::StatusOr<TrainState> read = TrainState::FromJson(ranks[2]->State().ToJson());
      ASSERT_TRUE(read.ok()) << read.status();
      state = *read;
    }
  }
  EXPECT_EQ(state.streams["train"].next_step, 6);
  EXPECT_EQ(state.streams["train"].resume,
            (ResumeState{2, {{0, {4, "after 4"}}, {1, {5, "after 5"}}}}));
  std::vector<std::thread> trainers;
  for (int64_t r = 0; r < 2; ++r) {
    trainers.emplace_back([&, r] {
      RankOptions options = OptionsOf(r, 2);
      options.generation = 2;
      options.resume = state;
      const auto rank = OpenRank(options);
      EXPECT_EQ(Read(*rank, "train", r, 2, 6, kAll, 1, [](int64_t) {}), 14);
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
}

// Two rank processes that may be told to restart; each goes on where its trainer was. They stay
// until both are done: a server that restarts needs all ranks back.
class RestartingTrainers {
 public:
  void Restart(int64_t r) { restart_[r] = true; }
  bool both_under_way() const { return under_way_ == 2; }

  // To the end of the pass; `open` opens the rank, from a position. Returns the number of steps.
  template <typename Open>
  int64_t Train(int64_t r, Open open) {
    std::optional<TrainState> position;
    int64_t step = 0;
    while (true) {
      const std::unique_ptr<Rank> rank = open(position);
      while (!restart_[r].exchange(false)) {
        const absl::StatusOr<std::optional<RankStep>> next = rank->Next("train");
        EXPECT_TRUE(next.ok()) << "rank " << r << " step " << step << ": " << next.status();
        if (!next.ok() || !next->has_value()) {
          --under_way_;
          while (under_way_ > 0) absl::SleepFor(absl::Milliseconds(1));
          return step;
        }
        EXPECT_EQ((*next)->step, step++);
        ExpectStep(**next, r, 2, 2);
        absl::SleepFor(absl::Milliseconds(20));
      }
      position = rank->State();
      step = position->streams["train"].next_step;
    }
  }

 private:
  std::atomic<bool> restart_[2] = {};
  std::atomic<int> under_way_ = 2;
};

TEST_F(Training, WhateverRestartsWheneverEveryStepComesRight) {
  constexpr int64_t kSteps = 120;
  Serve();
  StartLoaders(2, {{"train", kSteps}}, /*microbatches=*/2);
  RestartingTrainers trainers;
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto open = [&](const std::optional<TrainState>& position) {
        RankOptions options = OptionsOf(r, 2);
        options.position = position;
        return OpenRank(options);
      };
      EXPECT_EQ(trainers.Train(r, open), kSteps);
    });
  }
  const auto restart_loader = [&](int64_t i) {
    loaders_[i].reset();
    sources_[i] = std::make_unique<TestSource>("train", kSteps, 2);
    loaders_[i] = Loader::Start(server_->address(), {.group = "g", .loader = i, .num_loaders = 2},
                                {{"train", sources_[i].get()}})
                      .value();
  };
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());  // --gtest_shuffle
  while (trainers.both_under_way()) {
    absl::SleepFor(absl::Milliseconds(20 + random() % 100));
    const auto what = static_cast<int64_t>(random() % 6);
    if (what == 0) {
      server_->Kill();
      server_->Start();
    } else if (what == 1) {
      server_->Freeze();
      absl::SleepFor(absl::Milliseconds(50));
      server_->Thaw();
    } else if (what < 4) {
      restart_loader(what - 2);
    } else {
      trainers.Restart(what - 4);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Training, AnOldGenerationIsAborted) {
  Serve();
  StartLoaders(1, {{"train", 20}});
  const auto old = OpenRank(OptionsOf(0, 1));
  Read(*old, "train", 0, 1, 0, 2, 1, [](int64_t) {});
  RankOptions options = OptionsOf(0, 1);
  options.generation = 2;
  const auto rank = OpenRank(options);
  Read(*rank, "train", 0, 1, 0, 6, 1, [](int64_t) {});
  absl::Status end;
  for (int i = 0; i < 10 && end.ok(); ++i) end = old->Next("train").status();
  EXPECT_TRUE(absl::IsAborted(end)) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("generation"));
}

TEST_F(Training, ValidationPassesStandBesideTheTraining) {
  Serve();
  StartLoaders(2, {{"train", 12}, {"val", 3}});
  std::vector<std::thread> trainers;
  for (int64_t r = 0; r < 2; ++r) {
    trainers.emplace_back([&, r] {
      RankOptions options = OptionsOf(r, 2);
      options.streams.push_back(
          {.name = "val", .max_step_bytes = int64_t{8} << 20, .closed = true});
      const auto rank = OpenRank(options);
      for (int64_t pass = 0; pass < 3; ++pass) {
        Read(*rank, "train", r, 2, 4 * pass, 4 * pass + 4, 1, [](int64_t) {});
        rank->StartPass("val");
        EXPECT_EQ(rank->State().streams["val"].pass, pass);
        EXPECT_EQ(Read(*rank, "val", r, 2, 0, kAll, 1, [](int64_t) {}), 3);
        rank->ClosePass("val", /*finished=*/pass == 2);
      }
      EXPECT_EQ(Read(*rank, "train", r, 2, 12, kAll, 1, [](int64_t) {}), 0);
      rank->ClosePass("train", /*finished=*/true);
      const absl::Status closed = rank->Close(absl::Seconds(20));
      EXPECT_TRUE(closed.ok()) << closed;
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  for (const auto& loader : loaders_) EXPECT_TRUE(loader->Wait().ok()) << loader->Wait();
}

TEST_F(Training, ATrainerThatWaitsIsToldForWhom) {
  Serve();
  StartLoaders(1, {{"train", 20}});
  RankOptions options = OptionsOf(0, 2);
  options.timeout = absl::Seconds(5);
  const auto alone = OpenRank(options);
  const absl::Status late = alone->Next("train").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("rank 1"));
  const Stall stall = alone->stats().last;
  EXPECT_GT(stall.peer, absl::Seconds(1));
  EXPECT_GT(stall.total(), absl::Milliseconds(4900));
}

}  // namespace
}  // namespace cpshard
