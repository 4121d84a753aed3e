// The ranks of a panel as the lines of a table: one each, or groups where there are too many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/draw/panel.h"

namespace cpshard::draw {

struct RankLine {
  int64_t first = 0, last = 0;           // ranks
  int64_t slots = 0, real = 0, pad = 0;  // summed
  double area = 0;                       // of the heaviest

  std::string label() const;  // "3", "0-255"
};

// The ranks shown, in at most `max_lines` lines of equally many neighbours.
std::vector<RankLine> RankLines(const Panel& panel, int64_t max_lines);

// Ranks that share a colour or mark, so that there are `max_bands` of them at most.
int64_t BandOf(const Panel& panel, int64_t max_bands);

// "3", of bands of several "0-63".
std::string BandLabel(const Panel& panel, int64_t first, int64_t band);

// An area as a multiple of the mean of all ranks; 0 where there is none.
double ShareOf(const Panel& panel, double area);

// The largest share of a rank that is shown, at least 1: what the bars of all panels are drawn to,
// so that they can be compared.
double MostShare(absl::Span<const Panel> panels);

}  // namespace cpshard::draw
