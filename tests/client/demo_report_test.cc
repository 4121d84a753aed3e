// The lines that loaders of the demo write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/demo/report.h"

namespace cpshard::demo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BatchReport Report() {
  return {.layout = "round_robin",
          .batch = 6,
          .real_tokens = 32000,
          .columns = 32768,
          .bytes = 819000,
          .tokens_of_rank = {8000, 8001, 7999, 8000},
          .seconds = 0.00125,
          .equal = {"input_ids", "labels"}};
}

absl::StatusOr<BatchReport> Parsed(absl::string_view text) {
  absl::StatusOr<LoaderLine> line = ParseLine(text);
  if (!line.ok()) return line.status();
  return std::get<BatchReport>(*line);
}

TEST(LoaderReport, IsOneLineOfJson) {
  EXPECT_EQ(ToLine(RoundBegun{8}), R"({"in_flight":8})");
  const std::string line = ToLine(Report());
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  for (const char* part :
       {R"("layout":"round_robin")", R"("batch":6)", R"("real_tokens":32000)", R"("columns":32768)",
        R"("bytes":819000)", R"("tokens_of_rank":[8000,8001,7999,8000])", R"("seconds":0.00125)",
        R"("equal":["input_ids","labels"])"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
  EXPECT_THAT(line, Not(HasSubstr("difference")));
}

TEST(LoaderReport, ComesBackAsItWas) {
  EXPECT_EQ(*Parsed(ToLine(Report())), Report());
  EXPECT_EQ(*ParseLine(ToLine(RoundBegun{3})), LoaderLine(RoundBegun{3}));
}

TEST(LoaderReport, ADifferenceOfAnyBytesStaysOnItsLine) {
  BatchReport report = Report();
  report.difference = "rank 2: stream 'a\n\"b' [2, 8]: element 3 differs";
  EXPECT_THAT(ToLine(report), Not(HasSubstr("\n")));
  EXPECT_EQ(Parsed(ToLine(report))->difference, report.difference);
  report.difference = "stream '\xff'";
  EXPECT_THAT(Parsed(ToLine(report))->difference, HasSubstr("stream '"));
}

TEST(LoaderReport, RefusesWhatIsNoReportAndShowsIt) {
  const std::string whole = ToLine(Report());
  for (const std::string& text :
       {std::string(), std::string("no json"), std::string("[]"), std::string("{}"),
        std::string("7"), std::string(R"({"in_flight":-1})"), std::string(R"({"in_flight":"8"})"),
        whole.substr(0, whole.size() / 2), std::string(R"({"batch":6})")}) {
    EXPECT_EQ(ParseLine(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(ParseLine(text).status().message()), HasSubstr(text));
  }
}

TEST(LoaderReport, RefusesAMemberOfAnotherKind) {
  const std::string whole = ToLine(Report());
  const std::pair<std::string, std::string> changes[] = {
      {R"("batch":6)", R"("batch":-6)"},
      {R"("batch":6)", R"("batch":6.5)"},
      {R"("layout":"round_robin")", R"("layout":7)"},
      {"[8000,", R"(["8000",)"},
      {R"(["input_ids",)", "[7,"},
      {R"("equal":[)", R"("equals":[)"},
      {R"("seconds":0.00125)", R"("seconds":null)"},
      {R"("bytes":819000,)", ""},
  };
  for (const auto& [from, to] : changes) {
    std::string text = whole;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    EXPECT_FALSE(ParseLine(text).ok()) << text;
  }
}

}  // namespace
}  // namespace cpshard::demo
