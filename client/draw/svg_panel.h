// One panel of an SVG picture.
#pragma once

#include "client/draw/panel.h"
#include "client/draw/svg_writer.h"

namespace cpshard::draw {

inline constexpr double kSvgWidth = 960, kSvgMargin = 24;
inline constexpr double kSvgPlotLeft = 96;  // where column 0 is
inline constexpr double kSvgPlotWidth = kSvgWidth - kSvgMargin - kSvgPlotLeft;
inline constexpr int64_t kSvgTokens = 64;  // rows of up to so many columns: token by token
inline constexpr int64_t kSvgCells = 424;  // of a row that is too fine to be drawn exactly

// What the legend has to explain.
struct SvgUsed {
  bool document_pad = false, tail_pad = false, mixed = false, every = false, hidden = false;
  bool borders = false, dense = false;
};

// The width of a column in pixels, at most kSvgPlotWidth for `columns` of them.
double SvgColumnWidth(int64_t columns);

// What panels have in common, so that they can be compared.
struct SvgScale {
  double column_width = 1;
  double most_share = 1;  // as MostShare says
};

// Draws the panel below `top`; returns where it ends.
double DrawSvgPanel(const Panel& panel, const SvgScale& scale, double top, SvgWriter& svg,
                    SvgUsed& used);

}  // namespace cpshard::draw
