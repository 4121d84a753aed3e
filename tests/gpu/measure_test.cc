// What gpu_check measures, without a device's speed: that walks are timed in pairs, that a walk
// does all that its rate counts, and what rows are judged to be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "tests/gpu/ground.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/pairs.h"
#include "tests/gpu/row.h"
#include "tests/gpu/rows.h"
#include "tests/gpu/stand_in.h"

namespace cpshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Walks that take as long as a list says.
class Script {
 public:
  Walk Of(char name, std::vector<double> seconds) {
    return [this, name, seconds = std::move(seconds), i = size_t{0}]() mutable -> absl::Status {
      order_ += name;
      now_ += seconds.at(i++);
      return absl::OkStatus();
    };
  }
  Clock clock() {
    return [this] { return now_; };
  }
  const std::string& order() const { return order_; }

 private:
  double now_ = 100;
  std::string order_;
};

TEST(Pairs, TheRatioIsThatOfEachPairAndItsMedianCounts) {
  Script script;
  const Walk ours = script.Of('o', {1, 4, 2});
  const Walk anchor = script.Of('a', {1, 8, 1});
  const auto pairs = MeasurePairs(3, 8e9, ours, anchor, script.clock());
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(pairs->rounds, 3);
  EXPECT_THAT((std::vector<double>{pairs->ratio.least, pairs->ratio.median, pairs->ratio.most}),
              ElementsAre(0.5, 1, 2));
  EXPECT_THAT((std::vector<double>{pairs->ours.least, pairs->ours.median, pairs->ours.most}),
              ElementsAre(2, 4, 8));
  EXPECT_THAT((std::vector<double>{pairs->anchor.least, pairs->anchor.median, pairs->anchor.most}),
              ElementsAre(1, 8, 8));
}

TEST(Pairs, WhoGoesFirstChanges) {
  Script script;
  const Walk ours = script.Of('o', {1, 1, 1, 1}), anchor = script.Of('a', {1, 1, 1, 1});
  ASSERT_TRUE(MeasurePairs(4, 1, ours, anchor, script.clock()).ok());
  EXPECT_EQ(script.order(), "aooaaooa");
}

TEST(Pairs, WhatAWalkSaysIsTheResult) {
  Script script;
  const Walk fails = [] { return absl::InternalError("error 700"); };
  for (const bool ours : {true, false}) {
    const Walk works = script.Of('w', {1, 1});
    const auto pairs =
        MeasurePairs(1, 1, ours ? fails : works, ours ? works : fails, script.clock());
    EXPECT_EQ(pairs.status(), absl::InternalError("error 700"));
  }
}

TEST(Pairs, ARunThatIsRefusedForWantOfMemoryIsNotAMachineThatHasNone) {
  const Walk refused = Held([] { return absl::ResourceExhaustedError("5 bytes of copies"); });
  EXPECT_EQ(refused(), absl::InternalError("5 bytes of copies"));
  EXPECT_TRUE(Held([] { return absl::OkStatus(); })().ok());
}

GpuRow Row(double ratio, double goal, double limit) {
  GpuRow row;
  row.what = "job";
  row.pairs = {21, {1, 2, 3}, {4, 5, 6}, {ratio - 0.25, ratio, ratio + 0.25}, 1e9};
  row.goal = goal;
  row.limit = limit;
  return row;
}

TEST(Row, TheMedianIsHeldAgainstTheGoal) {
  EXPECT_EQ(VerdictOf(Row(0.9, 0.9, 1.5)), Verdict::kPass);
  EXPECT_EQ(VerdictOf(Row(0.89, 0.9, 1.5)), Verdict::kFail);
  EXPECT_EQ(VerdictOf(Row(0.1, 0, 1.5)), Verdict::kNone);
  EXPECT_EQ(ReasonOf(Row(0.75, 0.9, 1.5)),
            "0.750 x a plain copy (0.500 to 1.000 in 21 pairs), goal 0.9");
}

TEST(Row, WhatIsMuchFasterThanACopyHasNotDoneItAll) {
  EXPECT_EQ(VerdictOf(Row(107.86, 0.9, 1.5)), Verdict::kFail);
  EXPECT_EQ(VerdictOf(Row(107.86, 0, 1.5)), Verdict::kFail);
  EXPECT_EQ(VerdictOf(Row(107.86, 0, 0)), Verdict::kNone);
  EXPECT_THAT(ReasonOf(Row(107.86, 0.9, 1.5)), HasSubstr("cannot be: more than 1.5"));
}

TEST(Row, ALineHasItsColumnsUnderTheHeadingAndTheNameLast) {
  GpuRow row = Row(0.75, 0.9, 1.5);
  row.host_seconds = 0.125;  // of half a second
  EXPECT_EQ(RowHeading(), "         GB/s   a copy   ratio   least    most  goal  host  what");
  EXPECT_EQ(LineOf(row), "FAIL      2.0      5.0   0.750   0.500   1.000   0.9   25%  job");
  EXPECT_EQ(
      LineOf(Row(2, 0, 1.5)),
      "FAIL      2.0      5.0   2.000   1.750   2.250     -     -  job: it cannot be that fast");
}

TEST(Row, AnErrorFailsWithItsTextAndMissingMemoryIsSkipped) {
  GpuRow row = Row(0.95, 0.9, 1.5);
  row.status = absl::InternalError("cudaMemcpyAsync: error 1 (invalid argument)");
  EXPECT_EQ(VerdictOf(row), Verdict::kFail);
  EXPECT_EQ(LineOf(row), "FAIL  job: cudaMemcpyAsync: error 1 (invalid argument)");
  row.status = absl::ResourceExhaustedError("cudaMalloc for 5 bytes");
  EXPECT_EQ(VerdictOf(row), Verdict::kSkip);
  EXPECT_EQ(LineOf(row), "SKIP  job: cudaMalloc for 5 bytes");
}

TEST(Row, JsonHasTheSpreadsAndQuotesWhatIsSaid) {
  GpuRow row = Row(0.5, 0.9, 1.5);
  row.what = "a \"job\"\n\\";
  EXPECT_EQ(JsonOf(row),
            "{\"what\": \"a \\\"job\\\" \\\\\", \"gb_per_s\": [1, 2, 3], "
            "\"anchor_gb_per_s\": [4, 5, 6], \"ratio\": [0.25, 0.5, 0.75], \"pairs\": 21, "
            "\"host\": 0, \"goal\": 0.9, \"verdict\": \"FAIL\", "
            "\"reason\": \"0.500 x a plain copy (0.250 to 0.750 in 21 pairs), goal 0.9\"}");
}

// Every measured job, small, over ground of a few places.
class Walks : public testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    CountStandIns(&traffic_);
    ASSERT_TRUE(ground_.Begin(GetParam()).ok());
  }
  void TearDown() override { CountStandIns(nullptr); }

  Places PlacesFor(Where from, Where to) {
    const auto places = ground_.PlacesFor(from, to);
    EXPECT_TRUE(places.ok()) << places.status();
    return places.ok() ? *places : Places();
  }

  Walk Launches(const Places& places, const LaunchOptions& how = {}) {
    CudaExecutorOptions options;
    options.memory_bytes = 8 << 20;
    options.pinned_bytes = 1 << 20;
    auto device = MakeCudaDevice(0, options);
    EXPECT_TRUE(device.ok()) << device.status();
    auto walk = LaunchesOf(GetParam(), places, how, *std::move(device));
    EXPECT_TRUE(walk.ok()) << walk.status();
    return *std::move(walk);
  }

  DeviceTraffic traffic_;
  Ground ground_{{.device_bytes = 1 << 20, .host_bytes = 1 << 19}};
};

class Warps : public Walks {};

INSTANTIATE_TEST_SUITE_P(Measured, Warps, testing::ValuesIn(MeasuredJobs(16)),
                         [](const auto& job) { return "job_" + std::to_string(job.index); });

TEST_P(Warps, TouchWhatTheDocumentSays) {  // docs/GPU.md
  const Places places = PlacesFor(Where::kDevice, Where::kDevice);
  ASSERT_TRUE(Launches(places)().ok());
  const bool is_short = GetParam().run == 75;
  const auto total = static_cast<double>(places.total());
  EXPECT_EQ(traffic_.bytes_read, places.total());
  for (const int64_t sectors : {traffic_.read_sectors, traffic_.written_sectors}) {
    EXPECT_LE(32.0 * static_cast<double>(sectors), (is_short ? 1.11 : 1) * total);
  }
  EXPECT_GE(traffic_.read_sectors, (is_short ? 6.8 : 16) * traffic_.reads);
  EXPECT_GE(traffic_.written_sectors, (is_short ? 6.8 : 16) * traffic_.writes);
  const auto table = TableOfPlaces(GetParam(), places, 0, 1, 4096, 8 << 20);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_LE(table->block.size(), (is_short ? 0.0535 : 0.0085) * total);
}

INSTANTIATE_TEST_SUITE_P(Measured, Walks, testing::ValuesIn(MeasuredJobs(512)),
                         [](const auto& job) { return "job_" + std::to_string(job.index); });

TEST_P(Walks, BothSidesMoveTheBytesThatTheRateCountsEachTime) {
  Places places = PlacesFor(Where::kDevice, Where::kDevice);
  places.times = 2;
  ASSERT_GT(places.dests.size(), 1u);
  const Walk ours = Launches(places);
  const Walk anchor = PlainCopies(places, places);
  for (int64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(ours().ok());
    EXPECT_EQ(traffic_.bytes_written, round * places.total());
    EXPECT_EQ(traffic_.launches, round * 2 * static_cast<int64_t>(places.dests.size()));
    const int64_t before = BytesOfStandInCopies();
    ASSERT_TRUE(anchor().ok());
    EXPECT_EQ(BytesOfStandInCopies() - before, places.total());
  }
}

TEST_P(Walks, SeveralPlacesAreOneLaunchAndTheLastOneTakesTheRest) {
  const Places places = PlacesFor(Where::kDevice, Where::kDevice);
  ASSERT_GT(places.dests.size(), 1u);
  ASSERT_TRUE(Launches(places, {.places = places.dests.size() - 1})().ok());
  EXPECT_EQ(traffic_.launches, 2);
  EXPECT_EQ(traffic_.bytes_written, places.total());
  EXPECT_TRUE(ground_.CheckCut(places).ok());
}

TEST_P(Walks, AnAnchorBetweenHostAndHostUsesTheBusBothWays) {
  const Places places = PlacesFor(Where::kPinned, Where::kPinned);
  const Places device = PlacesFor(Where::kDevice, Where::kDevice);
  const int64_t before = BytesOfStandInCopies();
  ASSERT_TRUE(PlainCopies(places, device)().ok());
  EXPECT_EQ(BytesOfStandInCopies() - before, 2 * places.total());
  EXPECT_TRUE(ground_.CheckCopied(places).ok());
  EXPECT_FALSE(ground_.CheckCut(places).ok());
}

TEST_P(Walks, APlaceThatAWalkLeavesOutIsFound) {
  const Places places = PlacesFor(Where::kDevice, Where::kDevice);
  const Walk anchor = PlainCopies(places, places);
  ASSERT_TRUE(anchor().ok());
  EXPECT_TRUE(ground_.CheckCopied(places).ok());
  Places fewer = places;
  fewer.sources.pop_back();
  fewer.dests.pop_back();
  ASSERT_TRUE(Launches(fewer)().ok());
  const absl::Status status = ground_.CheckCut(places);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("place " + std::to_string(fewer.dests.size()) + " of "));
  ASSERT_TRUE(Launches(places)().ok());
  EXPECT_TRUE(ground_.CheckCut(places).ok());
}

TEST(Rows, EveryJobIsMeasuredInEveryWayAndLaunchesOfTheDefaultPiecesDecide) {
  const std::vector<GpuRow> rows = MeasureGpu({.shrink = 1024, .rounds = 1});
  EXPECT_EQ(rows.size(), 3u * 15);
  std::vector<std::string> with_goal;
  for (const GpuRow& row : rows) {
    EXPECT_TRUE(row.status.ok()) << row.what << ": " << row.status;
    EXPECT_GT(row.pairs.ratio.median, 0) << row.what;
    EXPECT_EQ(row.host_seconds > 0, absl::StrContains(row.what, "Executor::Run")) << row.what;
    if (row.goal > 0) with_goal.push_back(absl::StrCat(row.what, ": ", row.goal));
  }
  EXPECT_THAT(
      with_goal,
      ElementsAre("1M ids, labels, positions, mask; cp 8; device to device, launches alone, "
                  "pieces of 4096: 0.9",
                  "1M ids, labels, positions, mask; cp 8; pinned to device, launches alone, "
                  "pieces of 4096: 0.9",
                  "256 MB of embeddings, runs of 8 KB; device to device, launches alone, "
                  "pieces of 4096: 0.9",
                  "256 MB of embeddings, runs of 8 KB; pinned to device, launches alone, "
                  "pieces of 4096: 0.9",
                  "1M ids, labels, positions; runs of 600 bytes; device to device, "
                  "launches alone, pieces of 4096: 0.7"));
}

}  // namespace
}  // namespace cpshard
