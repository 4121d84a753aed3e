#include "client/draw/svg_ranks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/draw/palette.h"
#include "client/draw/ranks.h"
#include "client/draw/svg_panel.h"

namespace cpshard::draw {
namespace {

using Anchor = SvgWriter::Anchor;

constexpr double kRight = kSvgWidth - kSvgMargin;
constexpr size_t kMaxTable = 16;
constexpr double kLine = 17, kSlots = 160, kReal = 220, kPad = 270;  // right edges of columns
constexpr double kBar = 292, kBarEnd = kRight - 64;
constexpr double kChart = 64;  // height

std::string FillOf(const Panel& panel, int64_t rank) {
  return absl::StrCat("fill=\"", Hex(RankColour(rank, panel.num_ranks)), "\"");
}

double Table(const Panel& panel, double most_share, double y, SvgWriter& svg) {
  svg.Text(kSvgMargin, y + 10, "rank", "class=\"s m\"");
  svg.Text(kSlots, y + 10, "slots", "class=\"s m\"", Anchor::kEnd);
  svg.Text(kReal, y + 10, "real", "class=\"s m\"", Anchor::kEnd);
  svg.Text(kPad, y + 10, "padding", "class=\"s m\"", Anchor::kEnd);
  svg.Text(kBar, y + 10, "attention area, as a multiple of the mean (dashed)", "class=\"s m\"");
  y += 16;
  const double top = y;
  for (const RankFigures& rank : panel.ranks) {
    svg.Rect(kSvgMargin, y + 2, 12, 12, FillOf(panel, rank.rank));
    svg.Text(kSvgMargin + 18, y + 12, absl::StrCat(rank.rank), "");
    svg.Text(kSlots, y + 12, Grouped(rank.slots), "", Anchor::kEnd);
    svg.Text(kReal, y + 12, Grouped(rank.real), "", Anchor::kEnd);
    svg.Text(kPad, y + 12, Grouped(rank.pad), "", Anchor::kEnd);
    const double share = ShareOf(panel, rank.area);
    const double width = share / most_share * (kBarEnd - kBar);
    svg.Rect(kBar, y + 2, width, 12, FillOf(panel, rank.rank));
    svg.Text(kRight, y + 12, absl::StrFormat("%.3f", share), "", Anchor::kEnd);
    y += kLine;
  }
  const double mean = kBar + (kBarEnd - kBar) / most_share;
  svg.Line(mean, top - 1, mean, y, "class=\"e\"");
  return y + 6;
}

// "16 slots", "12 to 16 slots"
std::string Range(const Panel& panel, int64_t RankFigures::*figure, const char* name) {
  const auto [least, most] = std::minmax_element(
      panel.ranks.begin(), panel.ranks.end(),
      [&](const RankFigures& a, const RankFigures& b) { return a.*figure < b.*figure; });
  const std::string from = Grouped((*least).*figure), to = Grouped((*most).*figure);
  return from == to ? absl::StrCat(from, " ", name) : absl::StrCat(from, " to ", to, " ", name);
}

double Chart(const Panel& panel, double most_share, double y, SvgWriter& svg) {
  const auto heaviest =
      std::max_element(panel.ranks.begin(), panel.ranks.end(),
                       [](const RankFigures& a, const RankFigures& b) { return a.area < b.area; });
  svg.Text(kSvgMargin, y + 10,
           absl::StrCat("attention area by rank; the mean is dashed; the heaviest is rank ",
                        heaviest->rank, " with ",
                        absl::StrFormat("%.3f", ShareOf(panel, heaviest->area)),
                        " of it. A rank has ", Range(panel, &RankFigures::slots, "slots"), ", ",
                        Range(panel, &RankFigures::pad, "of padding")),
           "class=\"s m\"");
  y += 22;
  const std::vector<RankLine> lines = RankLines(panel, kSvgCells);
  const double width = kSvgPlotWidth / static_cast<double>(lines.size());
  svg.Raw("<g shape-rendering=\"crispEdges\">\n");
  for (size_t i = 0; i < lines.size(); ++i) {
    const double height = ShareOf(panel, lines[i].area) / most_share * kChart;
    const double x = kSvgPlotLeft + static_cast<double>(i) * width;
    svg.Rect(x, y + kChart - height, width > 4 ? width - 1 : width, height,
             FillOf(panel, lines[i].first));
  }
  svg.Raw("</g>\n");
  const double mean = y + kChart - kChart / most_share;
  svg.Line(kSvgPlotLeft - 4, mean, kRight, mean, "class=\"e\"");
  svg.Text(kSvgPlotLeft - 8, mean + 3, "mean", "class=\"s m\"", Anchor::kEnd);
  svg.Line(kSvgPlotLeft, y + kChart, kRight, y + kChart, "class=\"g\"");
  y += kChart + 12;
  svg.Text(kSvgPlotLeft, y, absl::StrCat("rank ", panel.ranks.front().rank), "class=\"s m\"");
  svg.Text(kRight, y, absl::StrCat("rank ", panel.ranks.back().rank), "class=\"s m\"",
           Anchor::kEnd);
  return y + 8;
}

}  // namespace

double DrawSvgRanks(const Panel& panel, double most_share, double top, SvgWriter& svg) {
  if (panel.ranks.size() <= kMaxTable) return Table(panel, most_share, top, svg);
  return Chart(panel, most_share, top, svg);
}

}  // namespace cpshard::draw
