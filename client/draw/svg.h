// Panels as one SVG picture, fit for documentation.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "client/draw/panel.h"

namespace cpshard::draw {

// One panel below the other: title, options, figures; ruler of documents, a bar per row, the ranks
// with their attention area. Rows of up to 64 columns are drawn token by token with their columns
// as numbers, longer ones as runs; where there are too many of these, in cells as in the terminal.
// The file needs nothing else: no fonts, no scripts; light or dark as the reader prefers; text is
// text. The same panels give the same bytes. Precondition: panels.
std::string DrawSvg(absl::Span<const Panel> panels);

}  // namespace cpshard::draw
