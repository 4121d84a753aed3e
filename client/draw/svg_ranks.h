// The ranks of a panel and their attention area: a table, or a chart where there are many.
#pragma once

#include "client/draw/panel.h"
#include "client/draw/svg_writer.h"

namespace cpshard::draw {

// Draws below `top`; returns where it ends. A rank with `most_share` times the mean area has a bar
// of full length.
double DrawSvgRanks(const Panel& panel, double most_share, double top, SvgWriter& svg);

}  // namespace cpshard::draw
