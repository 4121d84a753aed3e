// Cells and runs of a picture, against the same rules token by token.
#include "client/draw/cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "client/draw/palette.h"
#include "client/draw/ranks.h"
#include "client/draw/scale.h"
#include "tests/client/draw_panels.h"

namespace cpshard::draw {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Spans = std::vector<DocumentSpan>;

// The rule of OwnerCells, column by column.
int64_t OwnerOfCell(const std::vector<int64_t>& owners, int64_t begin, int64_t end, int64_t band) {
  std::map<int64_t, int64_t> held;
  for (int64_t column = begin; column < end; ++column) ++held[owners[column] / band * band];
  for (const auto& [first, columns] : held) {
    if (2 * columns > end - begin) return first;
  }
  return kMixed;
}

TEST(DrawCells, ShowTheRankOrBandThatHoldsMoreThanHalf) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int64_t ranks = 1 + random() % 9, columns = 1 + random() % 60;
    std::vector<int64_t> owners;
    while (static_cast<int64_t>(owners.size()) < columns) {
      const int64_t rank = random() % ranks;
      for (int64_t i = 1 + random() % 7; i > 0; --i) owners.push_back(rank);
    }
    owners.resize(columns);
    const Panel panel = PanelOf(SummaryOf(ranks, owners, 1));
    const int64_t band = 1 + random() % 3;
    const Axis axis{columns, static_cast<int64_t>(1 + random() % 8)};
    const std::vector<int64_t> cells = OwnerCells(panel, 0, axis, band);
    ASSERT_EQ(static_cast<int64_t>(cells.size()), axis.cells());
    for (int64_t cell = 0; cell < axis.cells(); ++cell) {
      const int64_t end = std::min(columns, (cell + 1) * axis.scale);
      EXPECT_EQ(cells[cell], OwnerOfCell(owners, cell * axis.scale, end, band))
          << "cell " << cell << " of " << axis.scale << " columns, band " << band;
    }
    std::vector<int64_t> again;
    for (const OwnerRun& run : OwnerRuns(panel, 0)) {
      EXPECT_EQ(run.begin, static_cast<int64_t>(again.size()));
      again.insert(again.end(), run.length, run.owner);
    }
    EXPECT_EQ(again, owners);
  }
}

TEST(DrawCells, AreMixedWhereTwoRanksHaveHalfEach) {
  const Panel panel = PanelOf(SummaryOf(2, Owners("0011010001"), 1));
  EXPECT_THAT(OwnerCells(panel, 0, {10, 4}, 1), ElementsAre(kMixed, 0, kMixed));
  EXPECT_THAT(OwnerCells(panel, 0, {10, 1}, 1), ElementsAre(0, 0, 1, 1, 0, 1, 0, 0, 0, 1));
}

TEST(DrawCells, OfRanksThatAreNotShownStayEmpty) {
  PlanSummary summary = SummaryOf(4, Owners("00112233"), 1);
  summary.layouts = {summary.layouts[2], summary.layouts[1]};
  const Panel panel = PanelOf(summary);
  EXPECT_THAT(OwnerRuns(panel, 0), ElementsAre(OwnerRun{0, 2, kNotShown}, OwnerRun{2, 2, 1},
                                               OwnerRun{4, 2, 2}, OwnerRun{6, 2, kNotShown}));
  EXPECT_THAT(OwnerCells(panel, 0, {8, 2}, 1), ElementsAre(kNotShown, 1, 2, kNotShown));
  ASSERT_EQ(panel.ranks.size(), 2u);
  EXPECT_EQ(panel.ranks[0].rank, 1);
}

TEST(DrawCells, OneRankThatHoldsAllIsNotEveryRank) {
  PlanSummary summary = SummaryOf(3, Owners("0000"), 1);
  summary.layouts.resize(1);
  EXPECT_THAT(OwnerRuns(PanelOf(summary), 0), ElementsAre(OwnerRun{0, 4, 0}));
}

TEST(DrawCells, OfAPlanThatCutsNothingAreEveryRanks) {
  PlanSummary summary = SummaryOf(2, Owners("0000"), 1);
  summary.layouts[1].runs = summary.layouts[0].runs;
  summary.loads[1] = summary.loads[0];
  const Panel panel = PanelOf(summary);
  EXPECT_THAT(OwnerRuns(panel, 0), ElementsAre(OwnerRun{0, 4, kEveryRank}));
  EXPECT_THAT(OwnerCells(panel, 0, {4, 2}, 1), ElementsAre(kEveryRank, kEveryRank));
}

TEST(DrawKinds, TellPaddingOfADocumentFromThatOfNone) {
  // Columns: 3 real, 1 pad of the document, 1 of none, 2 real, 1 of none.
  const Spans documents = {{0, 3, 4}, {5, 2, 2}};
  const Panel panel = PanelOf(SummaryOf(2, Owners("00001111"), 1, {documents}));
  EXPECT_THAT(KindRuns(panel, documents),
              ElementsAre(KindRun{0, 3, Kind::kReal}, KindRun{3, 1, Kind::kDocumentPad},
                          KindRun{4, 1, Kind::kTailPad}, KindRun{5, 2, Kind::kReal},
                          KindRun{7, 1, Kind::kTailPad}));
  EXPECT_THAT(KindCells(KindRuns(panel, documents), {8, 2}),
              ElementsAre(Kind::kReal, Kind::kReal, Kind::kReal, Kind::kReal));
  EXPECT_THAT(KindCells(KindRuns(panel, documents), {8, 3}),
              ElementsAre(Kind::kReal, Kind::kTailPad, Kind::kReal));
}

TEST(DrawKinds, PaddingAtTheEndOfRowsIsKnownWithoutDocuments) {
  PlanSummary summary = SummaryOf(2, Owners("00001111"), 3);
  for (ShardLayout& layout : summary.layouts) layout.original_seq_len = 6;
  summary.pad_columns = 6;
  const Panel panel = PanelOf(summary);
  EXPECT_THAT(KindRuns(panel, panel.DocumentsOf(0, 2)),
              ElementsAre(KindRun{0, 6, Kind::kReal}, KindRun{6, 2, Kind::kTailPad}));
}

TEST(DrawPanel, CountsPaddingThatNothingLocates) {
  PlanSummary summary = SummaryOf(2, Owners("00001111"), 3);
  summary.pad_columns = summary.totals->tokens.pad = 5;
  summary.totals->tokens.real = 19;
  EXPECT_EQ(PanelOf(summary).pads_not_drawn, 5);
  EXPECT_THAT(DescribeGaps(PanelOf(summary)), ElementsAre(HasSubstr("5 columns of padding")));
  EXPECT_TRUE(DescribeGaps(PanelOf(SummaryOf(2, Owners("0011"), 1))).empty());
}

TEST(DrawPanel, ChunksAreWindowsOfOneStream) {
  PlanSummary summary = SummaryOf(2, Owners("0110"), 2, {{{0, 4, 4}}, {{0, 2, 4}}});
  for (ShardLayout& layout : summary.layouts) {
    const std::vector<cpshard::Run> once = layout.runs;
    for (const cpshard::Run& run : once) layout.runs.push_back({run.source + 4, run.length});
  }
  summary.layouts[0].runs = {{0, 1}, {3, 2}, {7, 1}};  // the windows' columns lie side by side
  summary.documents[1].chunk = 1;
  summary.documents[1].row = 0;
  const Panel panel = PanelOf(summary);
  ASSERT_EQ(panel.chunks.size(), 2u);
  for (size_t chunk : {0, 1}) {
    EXPECT_THAT(OwnerRuns(panel, chunk),
                ElementsAre(OwnerRun{0, 1, 0}, OwnerRun{1, 2, 1}, OwnerRun{3, 1, 0}));
  }
  EXPECT_EQ(panel.DocumentsOf(1, 0), (Spans{{0, 2, 4}}));
  int64_t left = 0;
  EXPECT_EQ(BarsOf(panel, 8, &left)[1].label, "chunk 1");
}

TEST(DrawPanel, RowsThatLookTheSameAreOneBar) {
  const Spans a = {{0, 4, 4}}, b = {{0, 2, 2}, {2, 2, 2}};
  const Panel panel = PanelOf(SummaryOf(2, Owners("0011"), 5, {a, a, b, a, a}));
  int64_t left = 0;
  std::vector<std::string> labels;
  for (const Bar& bar : BarsOf(panel, 8, &left)) labels.push_back(bar.label);
  EXPECT_THAT(labels, ElementsAre("rows 0-1", "row 2", "rows 3-4"));
  EXPECT_EQ(left, 0);
  EXPECT_EQ(BarsOf(panel, 1, &left).size(), 1u);
  EXPECT_EQ(left, 3);
}

TEST(DrawPanel, OfAPlanWithoutLayoutOrColumnsThereIsNone) {
  PlanSummary without = SummaryOf(2, Owners("0011"), 1);
  without.layouts.clear();
  PlanSummary empty = SummaryOf(2, Owners("0011"), 1);
  empty.rows = empty.padded_columns = 0;
  for (const PlanSummary& summary : {without, empty}) {
    const absl::Status status = MakePanel("x", "{}", summary).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("nothing to draw"));
  }
}

TEST(DrawPanel, OfMoreRowsThanCanBeHeldThereIsNone) {
  PlanSummary summary = SummaryOf(2, Owners("0011"), 1);
  summary.rows = int64_t{1} << 40;
  summary.padded_columns = summary.rows * 4;
  const absl::Status status = MakePanel("x", "{}", summary).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("too many to draw"));
}

TEST(DrawPanel, ASummaryThatContradictsItselfIsRefused) {
  const PlanSummary good = SummaryOf(2, Owners("0011"), 2, {{{0, 4, 4}}, {{0, 4, 4}}});
  std::vector<PlanSummary> bad(8, good);
  bad[0].layouts[1].runs = {{6, 3}};
  bad[1].layouts[1].cp_rank = 2;
  bad[2].loads.pop_back();
  bad[3].documents[1].row = 2;
  bad[4].documents[0].span = {2, 3, 3};
  bad[5].documents[1] = bad[5].documents[0];
  bad[6].padded_columns = 7;
  bad[7].documents[0].span.real = 5;
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(MakePanel("x", "{}", bad[i]).status().code(), absl::StatusCode::kInternal) << i;
  }
}

TEST(DrawScale, PanelsOfLikeLengthShareOne) {
  const std::vector<int64_t> long_row(96, 0), like(64, 0), short_row(40, 0);
  const std::vector<Panel> panels = {PanelOf(SummaryOf(1, long_row, 1)),
                                     PanelOf(SummaryOf(1, like, 1)),
                                     PanelOf(SummaryOf(1, short_row, 1))};
  const std::vector<Scale> scales = ScalesOf(panels, 48, 4);
  EXPECT_EQ(scales[0].columns_per_cell, 2);
  EXPECT_EQ(scales[1].columns_per_cell, 2);
  EXPECT_EQ(scales[2].columns_per_cell, 1);
  EXPECT_EQ(ScalesOf(panels, 400, 3)[0].cell_width, 3);
}

TEST(DrawScale, TicksAreRoundNumbers) {
  EXPECT_EQ(TickStep(64, 8), 8);
  EXPECT_EQ(TickStep(1 << 20, 8), 1 << 17);
  EXPECT_EQ(TickStep(1000, 5), 200);
  EXPECT_EQ(TickStep(7, 10), 1);
}

TEST(DrawRanks, ManyAreTakenTogether) {
  PlanSummary summary = SummaryOf(6, Owners("012345555"), 1);
  const std::vector<RankLine> lines = RankLines(PanelOf(summary), 2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].label(), "3-5");
  EXPECT_EQ(lines[1].slots, 6);
  EXPECT_EQ(lines[1].area, 6 + 7 + 8 + 9);  // columns 5 ... 8 are rank 5's
}

TEST(DrawPalette, GetsLighterWithEveryRank) {
  for (const int64_t ranks : {2, 4, 8, 64, 256}) {
    for (int64_t rank = 1; rank < ranks; ++rank) {
      EXPECT_GE(Luminance(RankColour(rank, ranks)) + 0.004, Luminance(RankColour(rank - 1, ranks)))
          << rank << " of " << ranks;
    }
  }
}

TEST(DrawPalette, NumbersStandOutFromTheirColours) {
  for (int64_t rank = 0; rank < 256; ++rank) {
    const Colour colour = RankColour(rank, 256);
    const double l = Luminance(colour), ink = Luminance(InkOn(colour));
    EXPECT_GE((std::max(l, ink) + 0.05) / (std::min(l, ink) + 0.05), 4.5) << Hex(colour);
  }
}

TEST(DrawPalette, KnowsTheColoursOfTheCubeAndTheGreys) {
  EXPECT_EQ(Ansi256({0, 0, 0}), 16);
  EXPECT_EQ(Ansi256({255, 255, 255}), 231);
  EXPECT_EQ(Ansi256({95, 135, 175}), 16 + 36 + 12 + 3);
  EXPECT_EQ(Ansi256({118, 118, 118}), 243);
}

}  // namespace
}  // namespace cpshard::draw
