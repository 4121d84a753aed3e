// Loaders and ranks of a job against a real server, as the tests of both have them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/session/loader.h"
#include "client/session/rank.h"
#include "tests/client/shard_stream.h"

namespace cpshard {

// What a data set holds: the same whoever asks, and something else in every microbatch.
inline Batch DataOf(const std::string& stream, int64_t pass, int64_t step, int64_t microbatch) {
  const int64_t columns = 200 + 16 * (step % 5) + (step % 7 == 3 ? 30'000 : 0);
  const int64_t number = (stream == "train" ? 0 : 10'000) + 1000 * pass + 10 * step + microbatch;
  return TokenBatch(number, columns);
}

// One loader's part of a data stream of `end` steps.
class TestSource : public StepSource {
 public:
  TestSource(std::string stream, int64_t end, int64_t microbatches = 1)
      : stream_(std::move(stream)), end_(end), microbatches_(microbatches) {}

  absl::StatusOr<std::optional<SourceStep>> Make(int64_t pass, int64_t step) override {
    absl::MutexLock lock(&mutex_);
    made_.push_back(step);
    if (step >= end_) return std::nullopt;
    SourceStep made;
    for (int64_t i = 0; i < microbatches_; ++i) {
      made.microbatches.push_back(DataOf(stream_, pass, step, i));
    }
    made.state = absl::StrCat("after ", step);
    return made;
  }

  int64_t EndStep(int64_t) override { return end_; }

  absl::Status Rewind(int64_t, int64_t step, const std::optional<LoaderState>& state) override {
    absl::MutexLock lock(&mutex_);
    rewinds_.push_back(absl::StrCat(step, ": ", state ? state->state : "start"));
    return absl::OkStatus();
  }

  std::vector<int64_t> made() const {
    absl::MutexLock lock(&mutex_);
    return made_;
  }
  std::vector<std::string> rewinds() const {
    absl::MutexLock lock(&mutex_);
    return rewinds_;
  }

 private:
  const std::string stream_;
  const int64_t end_, microbatches_;
  mutable absl::Mutex mutex_;
  std::vector<int64_t> made_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> rewinds_ ABSL_GUARDED_BY(mutex_);
};

inline void ExpectStep(const RankStep& step, int64_t rank, int64_t ranks, int64_t microbatches) {
  SCOPED_TRACE(absl::StrCat(step.stream, "#", step.pass, "/", step.step, " of rank ", rank));
  EXPECT_EQ(step.totals.num_microbatches, microbatches);
  ASSERT_EQ(step.microbatches.size(), microbatches);
  for (int64_t i = 0; i < microbatches; ++i) {
    const Batch batch = DataOf(step.stream, step.pass, step.step, i);
    EXPECT_EQ(step.microbatches[i].digest, DigestOf(batch));
    ExpectShard(step.microbatches[i].shard, Expected(batch, ranks).shards[rank]);
  }
}

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    char folder[] = "/tmp/cpshard-test-XXXXXX";
    folder_ = mkdtemp(folder);
  }

  ~TrainingTest() override {
    loaders_.clear();
    server_.reset();
    std::system(("rm -rf " + folder_).c_str());
  }

  void Serve(bool tcp = false, const std::string& flag = "--shutdown-seconds=10") {
    server_.emplace(tcp ? ServerProgram::FreeTcpAddress() : ServerProgram::FreeUnixAddress(folder_),
                    std::vector<std::string>{flag});
    server_->Start();
  }

  void StartLoaders(int64_t count, const std::map<std::string, int64_t>& ends,
                    int64_t microbatches = 1) {
    for (int64_t i = 0; i < count; ++i) {
      std::map<std::string, StepSource*> sources;
      for (const auto& [name, end] : ends) {
        sources_.push_back(std::make_unique<TestSource>(name, end, microbatches));
        sources[name] = sources_.back().get();
      }
      absl::StatusOr<std::unique_ptr<Loader>> loader = Loader::Start(
          server_->address(), {.group = "g", .loader = i, .num_loaders = count, .checksums = true},
          sources);
      ASSERT_TRUE(loader.ok()) << loader.status();
      loaders_.push_back(*std::move(loader));
    }
  }

  RankOptions OptionsOf(int64_t rank, int64_t ranks) const {
    RankOptions options;
    options.group = "g";
    options.cp_size = ranks;
    options.cp_rank = rank;
    options.options = RoundRobin();
    options.streams = {{.name = "train", .max_step_bytes = int64_t{8} << 20}};
    options.timeout = absl::Seconds(60);
    return options;
  }

  std::unique_ptr<Rank> OpenRank(RankOptions options) const {
    absl::StatusOr<std::unique_ptr<Rank>> rank = Rank::Open(server_->address(), std::move(options));
    EXPECT_TRUE(rank.ok()) << rank.status();
    return rank.ok() ? *std::move(rank) : nullptr;
  }

  // Reads up to `end` (or the end of the pass) and checks every step. `each` is called with every
  // step. Returns how many there were.
  template <typename Each>
  static int64_t Read(Rank& rank, const std::string& stream, int64_t cp_rank, int64_t ranks,
                      int64_t begin, int64_t end, int64_t microbatches, Each each) {
    for (int64_t step = begin; step < end; ++step) {
      const absl::StatusOr<std::optional<RankStep>> next = rank.Next(stream);
      EXPECT_TRUE(next.ok()) << "rank " << cp_rank << " step " << step << ": " << next.status();
      if (!next.ok() || !next->has_value()) return step - begin;
      EXPECT_EQ((*next)->step, step);
      ExpectStep(**next, cp_rank, ranks, microbatches);
      each(step);
    }
    return end - begin;
  }

  std::string folder_;
  std::optional<ServerProgram> server_;
  std::vector<std::unique_ptr<TestSource>> sources_;
  std::vector<std::unique_ptr<Loader>> loaders_;  // go before the sources
};

}  // namespace cpshard
