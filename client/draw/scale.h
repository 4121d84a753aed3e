// How many columns a cell of each panel stands for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/draw/panel.h"

namespace cpshard::draw {

struct Scale {
  int64_t columns_per_cell = 1;
  int64_t cell_width = 1;  // over 1 only where columns_per_cell is 1
};

// Cells of whole columns that fill `width` as well as they can. Panels share the scale of the
// longest one, so that columns stand below each other, but for those that are less than half as
// long: they get their own.
std::vector<Scale> ScalesOf(absl::Span<const Panel> panels, int64_t width, int64_t max_cell_width);

// A round distance between the numbers of an axis: a power of two where that divides the length, as
// it does most rows, else 1, 2 or 5 times a power of ten. At most `max_ticks` (>= 1) steps.
int64_t TickStep(int64_t columns, int64_t max_ticks);

}  // namespace cpshard::draw
