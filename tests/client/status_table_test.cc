#include "client/cli/session/status_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kWide = 1000;

ReaderView ReaderAt(int64_t rank, int64_t next_step) {
  return {.reader = absl::StrCat("rank", rank),
          .cp_rank = rank,
          .opened = true,
          .connected = true,
          .streams = {{.stream = "train", .open = true, .next_step = next_step}}};
}

LoaderView LoaderAt(int64_t loader, int64_t next_step) {
  return {.loader = loader,
          .known = true,
          .connected = true,
          .silent_seconds = 2.4,
          .next_step = next_step};
}

GroupView GroupOf(std::vector<ReaderView> readers, std::vector<LoaderView> loaders) {
  GroupView group{.group = "job7/dp3", .generation = 4, .opened = true};
  group.cp_size = static_cast<int64_t>(readers.size());
  group.readers = std::move(readers);
  DataStreamView& stream = group.streams.emplace_back();
  stream.stream = "train";
  stream.floor = 3;
  stream.frontier = 7;
  stream.end_step = 40;
  stream.window_steps = 9;
  stream.granted_steps = 6;
  stream.complete_steps = 4;
  stream.used_bytes = 1'250'000;
  stream.guaranteed_bytes = 3'000'000;
  stream.num_loaders = static_cast<int64_t>(loaders.size());
  stream.loaders = std::move(loaders);
  stream.waiting_for = "train/7 from loader 1 (last seen 41s ago)";
  return group;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  return lines;
}

TEST(StatusTable, SaysHowFarADataStreamIsAndWhoIsWaitedFor) {
  const std::string text =
      StatusTable({GroupOf({ReaderAt(0, 5)}, {LoaderAt(0, 8), LoaderAt(1, 7)})}, kWide);
  EXPECT_THAT(text, HasSubstr("group job7/dp3: generation 4, 1 of 1 ranks have opened\n"));
  EXPECT_THAT(text, HasSubstr("train: pass 0, steps from 3 on in memory, complete before 7, end at "
                              "step 40\n"));
  EXPECT_THAT(text, HasSubstr("waits for train/7 from loader 1 (last seen 41s ago)\n"));
  EXPECT_THAT(text, HasSubstr("1.2 MB in use, 3.0 MB guaranteed"));
  EXPECT_THAT(text, HasSubstr("4 steps complete, 2 granted, of 9"));
}

TEST(StatusTable, SaysWhatTrainersHaveWaitedOfTheirTimeAndForWhom) {
  GroupView group = GroupOf({ReaderAt(0, 5), ReaderAt(1, 5), ReaderAt(2, 5)}, {LoaderAt(0, 8)});
  group.readers[0].stall = {.loader = 100'000, .peer = 20'000, .server = 30'000, .copy = 50'000};
  group.readers[0].elapsed_us = 1'000'000;
  group.readers[1].stall = {.loader = 2'800'000};
  group.readers[1].elapsed_us = 4'000'000;
  const std::string text = StatusTable({group}, kWide);
  EXPECT_THAT(text, HasSubstr("the ranks have waited 60% of their time: for loaders 58%, for other "
                              "ranks 0%, for the server 1%, for copies 1%\n"));
  EXPECT_THAT(text, ContainsRegex("\n +rank +lag +next +received +stall\n"));
  EXPECT_THAT(text, ContainsRegex("\n +0 +0 +5 +- +20%\n +1 +0 +5 +- +70%\n +2 +0 +5 +- +-\n"));
  EXPECT_THAT(text, ContainsRegex("\n +loader +lag +next\n"));
}

TEST(StatusTable, AddsUpWhatNoTrainerCanHaveWaited) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  GroupView group = GroupOf({ReaderAt(0, 5), ReaderAt(1, 5)}, {});
  for (ReaderView& reader : group.readers) {
    reader.stall = {.loader = kMost, .peer = kMost};
    reader.elapsed_us = kMost;
  }
  const std::string text = StatusTable({group}, kWide);
  EXPECT_THAT(text, HasSubstr("have waited 200% of their time: for loaders 100%"));
  EXPECT_THAT(text, ContainsRegex("\n +0 +0 +5 +- +200%\n"));
}

TEST(StatusTable, SaysWhichExecutorReadersAskForUnlessTheyLeaveItToTheServer) {
  GroupView group = GroupOf({ReaderAt(0, 5)}, {});
  EXPECT_THAT(StatusTable({group}, kWide), Not(HasSubstr("executor")));
  group.executor = ExecutorKind::kCuda;
  EXPECT_THAT(StatusTable({group}, kWide),
              HasSubstr("generation 4, 1 of 1 ranks have opened, executor cuda\n"));
}

TEST(StatusTable, SaysThatAGroupIsDeclared) {
  GroupView group;
  group.group = "early";
  group.declared = true;
  EXPECT_EQ(StatusTable({group}, kWide), "group early: no reader has opened it, it is declared\n");
}

TEST(StatusTable, ShowsTheNoticeOfADataStream) {
  GroupView group = GroupOf({ReaderAt(0, 5)}, {});
  group.streams[0].digest_changes = 3;
  group.streams[0].notice = "train/5 had another digest";
  EXPECT_THAT(
      StatusTable({group}, kWide),
      HasSubstr("notice: 3 batches came again as other ones; train/5 had another digest\n"));
}

TEST(StatusTable, PutsWhoIsFurthestBehindFirst) {
  const std::string text =
      StatusTable({GroupOf({ReaderAt(0, 9), ReaderAt(1, 4), ReaderAt(2, 8)}, {})}, kWide);
  EXPECT_THAT(text, ContainsRegex("\n +1 +5 +4 .*\n +2 +1 +8 .*\n +0 +0 +9 "));
}

TEST(StatusTable, CountsTheLagOfALoaderInItsOwnSteps) {
  // Of three loaders the next steps 13, 7 and 8: loader 1 is two of its steps behind 13, loader 2
  // one and a bit.
  const std::string text =
      StatusTable({GroupOf({}, {LoaderAt(0, 13), LoaderAt(1, 7), LoaderAt(2, 8)})}, kWide);
  EXPECT_THAT(text, ContainsRegex("\n +1 +2 +7 .*\n +2 +1 +8 .*\n +0 +0 +13 "));
  EXPECT_THAT(text, HasSubstr("heard 2s ago"));
}

TEST(StatusTable, SaysWhoHasNotComeAndWhoIsAway) {
  GroupView group = GroupOf({ReaderAt(0, 5), ReaderAt(1, 5)}, {LoaderAt(0, 8), {.loader = 1}});
  group.readers[1].connected = false;
  group.readers[1].away_seconds = 7.9;
  group.streams[0].loaders[0].silent_seconds = 0.4;
  const std::string text = StatusTable({group}, kWide);
  EXPECT_THAT(text, ContainsRegex("\n +1 +- +-  .*has not come\n"));
  EXPECT_THAT(text, HasSubstr("no connection for 7s"));
  EXPECT_THAT(text, HasSubstr("heard 0s ago"));
  EXPECT_THAT(text, HasSubstr("1 without a connection"));
}

TEST(StatusTable, SaysWhyAGenerationFailed) {
  GroupView group = GroupOf({ReaderAt(0, 5)}, {});
  group.failure = "loader 0 pushed another batch";
  EXPECT_THAT(StatusTable({group}, kWide),
              HasSubstr("the generation has failed: loader 0 pushed another batch\n"));
}

TEST(StatusTable, OfAGroupWithoutReadersSaysThatNobodyOpenedIt) {
  GroupView group;
  group.group = "early";
  EXPECT_EQ(StatusTable({group}, kWide), "group early: no reader has opened it\n");
  EXPECT_EQ(StatusTable({}, kWide), "no groups\n");
}

TEST(StatusTable, OfManyRanksShowsTheSlowestFewAndCountsTheOthers) {
  std::vector<ReaderView> readers;
  for (int64_t rank = 0; rank < 4096; ++rank) readers.push_back(ReaderAt(rank, 100));
  readers[4000].streams[0].next_step = 91;
  readers[17].streams[0].next_step = 95;
  const std::string text = StatusTable({GroupOf(readers, {})}, kWide);
  EXPECT_THAT(text, ContainsRegex("\n +4000 +9 +91 .*\n +17 +5 +95 "));
  EXPECT_THAT(text, HasSubstr("and 4088 more ranks, lag 0 at most\n"));
  EXPECT_THAT(text, HasSubstr("4096 of 4096 ranks"));
  EXPECT_LT(LinesOf(text).size(), 20u);
}

TEST(StatusTable, FitsTwentyColumns) {
  GroupView group = GroupOf({ReaderAt(1023, 123456), ReaderAt(1, 1)}, {LoaderAt(0, 123456)});
  group.readers[0].reader = "a reader with a name of its own";
  group.group = "job\xc3\xbc";
  const std::string text = StatusTable({group}, 20);
  for (const std::string& line : LinesOf(text)) {
    const auto characters =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
    EXPECT_LE(characters, 20) << line;
  }
  EXPECT_THAT(text, HasSubstr("last seen"));  // sentences are broken, not cut off
}

TEST(StatusTable, GivesTheTerminalNoCommands) {
  GroupView group = GroupOf({ReaderAt(0, 5)}, {LoaderAt(0, 8)});
  group.group = "a\x1b[2J\nb";
  group.readers[0].reader = "r\r\x07";
  group.streams[0].stream = group.readers[0].streams[0].stream = "s\x1b]0;title\x07";
  group.streams[0].waiting_for = "x\x1b[1Ay";
  group.failure = "z\tz\x7f";
  const std::string text = StatusTable({group}, kWide);
  EXPECT_TRUE(std::none_of(text.begin(), text.end(), [](unsigned char c) {
    return (c < ' ' && c != '\n') || c == 0x7f;
  })) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("group a [2J b:"), Not(HasSubstr("\nb"))));
}

TEST(FirstLines, LeavesOutWhatDoesNotFitAndSaysHowMuch) {
  EXPECT_EQ(FirstLines("a\nb\nc\n", 3), "a\nb\nc\n");
  EXPECT_EQ(FirstLines("a\nb\nc\n", 2), "a\n... 2 lines more\n");
  EXPECT_EQ(FirstLines("a\nb\nc\n", 1), "... 3 lines more\n");
}

}  // namespace
}  // namespace cpshard
