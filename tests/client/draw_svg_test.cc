// SVG pictures as text; tests/e2e/draw_test.py reads them as pictures.
#include "client/draw/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/draw/palette.h"
#include "client/draw/svg_writer.h"
#include "tests/client/draw_panels.h"

namespace cpshard::draw {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

int Count(absl::string_view text, absl::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

PlanSummary Packed(int64_t columns) {
  std::vector<int64_t> owners(columns, 0);
  std::fill(owners.begin() + columns / 2, owners.end(), 1);
  return SummaryOf(2, owners, 1, {{{0, columns / 4 - 1, columns / 4}, {columns / 4, 8, 8}}});
}

TEST(DrawSvg, IsTheSameEachTime) {
  EXPECT_EQ(DrawSvg({PanelOf(Packed(64))}), DrawSvg({PanelOf(Packed(64))}));
}

TEST(DrawSvg, NeedsNothingFromElsewhere) {
  const std::string svg = DrawSvg({PanelOf(Packed(64)), PanelOf(Packed(4096))});
  EXPECT_THAT(svg,
              AllOf(HasSubstr("viewBox"), HasSubstr("prefers-color-scheme:dark"),
                    Not(HasSubstr("href")), Not(HasSubstr("@import")), Not(HasSubstr("<script"))));
  EXPECT_EQ(Count(svg, "http"), 1);  // the namespace
}

TEST(DrawSvg, NumbersTheTokensOfShortRowsAndTheRunsOfLongOnes) {
  const std::string tokens = DrawSvg({PanelOf(Packed(64))});
  for (int64_t column = 0; column < 64; ++column) {
    EXPECT_THAT(tokens, HasSubstr(absl::StrCat(">", column, "</text>")));
  }
  const std::string runs = DrawSvg({PanelOf(Packed(4096))});
  EXPECT_THAT(runs, Not(HasSubstr(">63</text>")));
  EXPECT_EQ(Count(runs, absl::StrCat("height=\"26\" fill=\"", Hex(RankColour(1, 2)))), 1);
}

TEST(DrawSvg, HatchesTheTwoKindsOfPadding) {
  const std::string svg = DrawSvg({PanelOf(Packed(64))});
  EXPECT_EQ(Count(svg, "height=\"26\" fill=\"url(#inner)\""), 1);
  EXPECT_EQ(Count(svg, "height=\"26\" fill=\"url(#tail)\""), 64 - 16 - 8);
  EXPECT_THAT(svg, AllOf(HasSubstr("padding in a document"), HasSubstr("padding of no document")));
  EXPECT_THAT(DrawSvg({PanelOf(SummaryOf(2, Owners("0011"), 1))}), Not(HasSubstr("padding in")));
}

TEST(DrawSvg, HasNoMoreElementsThanCanBeSeen) {
  std::vector<int64_t> owners;
  std::vector<DocumentSpan> documents;
  for (int64_t column = 0; column < 100000; ++column) owners.push_back(column % 100);
  for (int64_t i = 0; i < 20000; ++i) documents.push_back({5 * i, 3, 5});
  const std::string svg = DrawSvg({PanelOf(SummaryOf(100, owners, 1, {documents}))});
  EXPECT_LT(svg.size(), 300000u);
  EXPECT_THAT(svg, AllOf(HasSubstr("drawn in cells of"), HasSubstr("no rank has more than half"),
                         HasSubstr("documents too narrow to tell apart")));
}

TEST(DrawSvg, TextOfTheCallerIsEscaped) {
  const std::string name = "<&\"\x01>";
  const Panel panel = *MakePanel(name, name, SummaryOf(2, Owners("0011"), 1));
  const std::string svg = DrawSvg({panel});
  EXPECT_THAT(
      svg, AllOf(HasSubstr("&lt;&amp;&quot; &gt;"), Not(HasSubstr("<&")), Not(HasSubstr("\x01"))));
}

TEST(DrawSvg, LongOptionsEndInDots) {
  EXPECT_EQ(SvgClipped("abcdef", 6), "abcdef");
  EXPECT_EQ(SvgClipped("abcdefg", 6), "abc...");
  EXPECT_EQ(SvgClipped("ab\xc3\xa9"
                       "defg",
                       6),
            "ab...");  // not half a character
}

TEST(DrawSvg, NumbersHaveTwoDecimalsAtMost) {
  EXPECT_EQ(SvgNumber(12), "12");
  EXPECT_EQ(SvgNumber(12.5), "12.5");
  EXPECT_EQ(SvgNumber(-0.256), "-0.26");
  EXPECT_EQ(SvgNumber(1.0 / 3), "0.33");
  EXPECT_EQ(SvgNumber(0.05), "0.05");
}

}  // namespace
}  // namespace cpshard::draw
