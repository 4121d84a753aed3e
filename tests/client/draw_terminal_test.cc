// Pictures for a terminal: one as a whole text, and what holds for all of them.
#include "client/draw/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/draw/palette.h"
#include "tests/client/draw_panels.h"

namespace cpshard::draw {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Drawn(absl::Span<const Panel> panels, int64_t columns,
                  ColourDepth depth = ColourDepth::kNone) {
  return *DrawInTerminal(panels, {.columns = columns, .depth = depth});
}

std::string Drawn(const PlanSummary& summary, int64_t columns,
                  ColourDepth depth = ColourDepth::kNone) {
  return Drawn({PanelOf(summary)}, columns, depth);
}

// The line that begins with `label`, without it.
std::string LineOf(const std::string& text, absl::string_view label) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.substr(0, label.size()) == label) return std::string(line.substr(label.size()));
  }
  return "no such line";
}

// Rank 0 works through 1 + 2 + 3 pairs, rank 1 through 4 of the first document and 10 of the
// second.
TEST(DrawTerminal, ASmallPlanAsAWhole) {
  const PlanSummary summary = SummaryOf(2, Owners("00011111"), 1, {{{0, 3, 4}, {4, 4, 4}}});
  EXPECT_EQ(Drawn(summary, 48),
            "a_layout\n"
            "options {\"a_layout\":{}}\n"
            "2 ranks, 1 row of 8 columns,\n"
            "  2 documents (by lengths)\n"
            "I_attn 1.400 (causal, per document)\n"
            "  I_tok 1.250   padding 12.5 %\n"
            "a cell is one column\n"
            "\n"
            "column    0       2       4       6\n"
            "documents |0----------::::|1--------------\n"
            "row 0     0   0   0   :   1   1   1   1\n"
            "\n"
            "   rank  slots  real  pad  attention area / mean\n"
            "0  0         3     3    0   0.600  ######\n"
            "1  1         5     4    1   1.400  #############\n"
            "\n"
            "digits and letters: ranks;  | begins;\n"
            "  : padding inside a document\n");
}

TEST(DrawTerminal, ACellThatSeveralRanksShareSaysSo) {
  std::vector<int64_t> owners;
  for (int64_t column = 0; column < 120; ++column) owners.push_back(column < 60 ? 0 : column % 4);
  const std::string text = Drawn(SummaryOf(4, owners, 1), 47);  // 40 cells of 3 columns
  EXPECT_EQ(LineOf(text, "row 0  "), std::string(20, '0') + std::string(20, '*'));
  EXPECT_THAT(text, AllOf(HasSubstr("a cell is 3 columns"), HasSubstr("* no rank has more than")));
}

TEST(DrawTerminal, ManyRanksShareMarksAndLines) {
  std::vector<int64_t> owners;
  for (int64_t rank = 0; rank < 128; ++rank) owners.insert(owners.end(), 10, rank);
  const std::string text = Drawn(SummaryOf(128, owners, 1), 71);  // 64 cells of 20 columns
  EXPECT_EQ(LineOf(text, "row 0  "),
            "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@&");
  EXPECT_THAT(text, AllOf(HasSubstr("a mark or colour is 2 neighbouring ranks"),
                          HasSubstr("   0-7         80    80")));
}

TEST(DrawTerminal, ANarrowTerminalBreaksBetweenWords) {
  std::vector<int64_t> owners;
  for (int64_t rank = 0; rank < 1024; ++rank) owners.push_back(rank);
  EXPECT_THAT(Drawn(SummaryOf(1024, owners, 1), 40),
              AllOf(HasSubstr("a mark or colour is 16 neighbouring\n  ranks\n"),
                    HasSubstr("real  pad  area\n")));
}

TEST(DrawTerminal, RanksThatWereNotAskedForAreBlank) {
  PlanSummary summary = SummaryOf(3, Owners("000111222"), 1);
  summary.layouts = {summary.layouts[1]};
  const std::string text = Drawn(summary, 40);
  EXPECT_EQ(LineOf(text, "row 0  "), "         1  1  1");
  EXPECT_THAT(text, HasSubstr("blank: a rank that was not asked for"));
}

TEST(DrawTerminal, SaysHowManyRowsAreLeft) {
  std::vector<std::vector<DocumentSpan>> documents;
  for (int64_t row = 0; row < 9; ++row) documents.push_back({{0, 8 - row % 2, 8}});
  const std::string text = Drawn(SummaryOf(2, Owners("00001111"), 9, documents), 60);
  EXPECT_THAT(text, AllOf(HasSubstr("row 5 "), Not(HasSubstr("row 6 ")),
                          HasSubstr("... and 3 more rows\n")));
}

TEST(DrawTerminal, OfManyDocumentsSeveralBeginInACell) {
  std::vector<DocumentSpan> documents;
  for (int64_t i = 0; i < 30; ++i) documents.push_back({2 * i, 2, 2});
  documents.push_back({60, 60, 60});
  const std::string text = Drawn(SummaryOf(1, std::vector<int64_t>(120, 0), 1, {documents}), 40);
  // 30 cells of 4 columns: two documents begin in each of the first 15.
  EXPECT_EQ(LineOf(text, "documents "), std::string(15, '#') + "|30" + std::string(12, '-'));
}

TEST(DrawTerminal, PanelsThatAreComparedHaveTheirColumnsBelowEachOther) {
  std::vector<int64_t> halves(200, 0), longer(240, 0);
  std::fill(halves.begin() + 100, halves.end(), 1);
  std::fill(longer.begin() + 100, longer.end(), 1);
  const std::string text =
      Drawn({PanelOf(SummaryOf(2, halves, 1)), PanelOf(SummaryOf(2, longer, 1))}, 67);
  EXPECT_THAT(text,
              AllOf(HasSubstr("row 0  " + std::string(25, '0') + std::string(25, '1') + "\n"),
                    HasSubstr("row 0  " + std::string(25, '0') + std::string(35, '1') + "\n")));
}

TEST(DrawTerminal, NoLineIsLongerThanTheTerminal) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int64_t ranks = 1 + random() % 40, columns = 1 + random() % 3000;
    std::vector<int64_t> owners;
    for (int64_t column = 0; column < columns; ++column) owners.push_back(random() % ranks);
    const PlanSummary summary =
        SummaryOf(ranks, owners, 2, {{{0, columns, columns}}, {{0, columns / 2, columns}}});
    const int64_t width = kMinTerminalColumns + random() % 100;
    for (absl::string_view line : absl::StrSplit(Drawn(summary, width), '\n')) {
      EXPECT_LE(static_cast<int64_t>(line.size()), width) << line;
    }
  }
}

// The text without escape codes.
std::string Plain(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033')
      i = text.find('m', i);
    else
      plain += text[i];
  }
  return plain;
}

TEST(DrawTerminal, ColoursEndWithTheirLine) {
  const PlanSummary summary = SummaryOf(2, Owners("00011111"), 1, {{{0, 3, 4}, {4, 4, 4}}});
  for (const ColourDepth depth : {ColourDepth::k256, ColourDepth::kTrue}) {
    const std::string text = Drawn(summary, 48, depth);
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      const size_t last = line.rfind("\033[");
      if (last == absl::string_view::npos) continue;
      EXPECT_EQ(line.substr(last, 4), "\033[0m") << line;
    }
    // The number of the rank stands in the middle of its columns.
    EXPECT_EQ(LineOf(Plain(text), "row 0     "), "     0      :          1        ");
    EXPECT_EQ(LineOf(Plain(text), "documents "), "|0----------::::|1--------------");
  }
}

TEST(DrawTerminal, ColoursAreThoseOfTheRanks) {
  const PlanSummary summary = SummaryOf(2, Owners("0011"), 1);
  const std::string text = Drawn(summary, 40, ColourDepth::k256);
  for (const int64_t rank : {0, 1}) {
    const std::string ground = absl::StrCat("48;5;", Ansi256(RankColour(rank, 2)), "m");
    EXPECT_THAT(text, HasSubstr(ground));
  }
  EXPECT_THAT(Drawn(summary, 40), Not(HasSubstr("\033")));
}

TEST(DrawTerminal, ATerminalThatIsTooNarrowIsToldSo) {
  const std::vector<Panel> panels = {PanelOf(SummaryOf(2, Owners("0011"), 1))};
  const absl::Status status = DrawInTerminal(panels, {.columns = 20}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("needs 40 columns and the terminal has 20"), HasSubstr("--svg")));
  EXPECT_TRUE(DrawInTerminal(panels, {.columns = kMinTerminalColumns}).ok());
}

}  // namespace
}  // namespace cpshard::draw
