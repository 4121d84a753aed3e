// Panels as text of fixed width, for a terminal or a file. ASCII; colours are escape codes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/draw/panel.h"

namespace cpshard::draw {

enum class ColourDepth { kNone, k256, kTrue };

struct TerminalStyle {
  int64_t columns = 80;
  ColourDepth depth = ColourDepth::kNone;
};

inline constexpr int64_t kMinTerminalColumns = 40;

// One panel below the other, each with a ruler of its documents, a bar per row, and a table of the
// ranks. A cell of a bar stands for one or several columns (the panel says how many) and shows what
// most of them are. Panels of like length share one scale. Without colour a rank is a digit or
// letter. No line is longer than style.columns.
// InvalidArgument: the terminal is narrower than kMinTerminalColumns. Precondition: panels.
absl::StatusOr<std::string> DrawInTerminal(absl::Span<const Panel> panels,
                                           const TerminalStyle& style);

}  // namespace cpshard::draw
