#include "client/draw/ranks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cpshard::draw {

std::string RankLine::label() const {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

std::vector<RankLine> RankLines(const Panel& panel, int64_t max_lines) {
  const auto count = static_cast<int64_t>(panel.ranks.size());
  const int64_t group = std::max<int64_t>(1, (count + max_lines - 1) / max_lines);
  std::vector<RankLine> lines;
  for (int64_t i = 0; i < count; ++i) {
    const RankFigures& rank = panel.ranks[i];
    if (i % group == 0) lines.push_back({.first = rank.rank});
    RankLine& line = lines.back();
    line.last = rank.rank;
    line.slots += rank.slots;
    line.real += rank.real;
    line.pad += rank.pad;
    line.area = std::max(line.area, rank.area);
  }
  return lines;
}

int64_t BandOf(const Panel& panel, int64_t max_bands) {
  return (panel.num_ranks + max_bands - 1) / max_bands;
}

std::string BandLabel(const Panel& panel, int64_t first, int64_t band) {
  const RankLine line{.first = first, .last = std::min(first + band, panel.num_ranks) - 1};
  return line.label();
}

double ShareOf(const Panel& panel, double area) {
  return panel.mean_area > 0 ? area / panel.mean_area : 0;
}

double MostShare(absl::Span<const Panel> panels) {
  double most = 1;
  for (const Panel& panel : panels) {
    for (const RankFigures& rank : panel.ranks) most = std::max(most, ShareOf(panel, rank.area));
  }
  return most;
}

}  // namespace cpshard::draw
