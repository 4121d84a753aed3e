#include "client/draw/scale.h"

#include <algorithm>

namespace cpshard::draw {
namespace {

Scale ScaleFor(int64_t columns, int64_t width, int64_t max_cell_width) {
  if (columns == 0) return {};
  if (columns > width) return {(columns + width - 1) / width, 1};
  return {1, std::clamp<int64_t>(width / columns, 1, max_cell_width)};
}

}  // namespace

std::vector<Scale> ScalesOf(absl::Span<const Panel> panels, int64_t width, int64_t max_cell_width) {
  int64_t longest = 0;
  for (const Panel& panel : panels) longest = std::max(longest, panel.columns);
  std::vector<Scale> scales;
  for (const Panel& panel : panels) {
    const bool alike = 2 * panel.columns >= longest;
    scales.push_back(ScaleFor(alike ? longest : panel.columns, width, max_cell_width));
  }
  return scales;
}

int64_t TickStep(int64_t columns, int64_t max_ticks) {
  int64_t two = 1;
  while (columns / two > max_ticks) two *= 2;
  if (columns % two == 0) return two;
  for (int64_t ten = 1;; ten *= 10) {
    for (const int64_t step : {ten, 2 * ten, 5 * ten}) {
      if (columns / step <= max_ticks) return step;
    }
  }
}

}  // namespace cpshard::draw
