// Lines of a picture in a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/draw/palette.h"
#include "client/draw/terminal.h"

namespace cpshard::draw {

// A line of `width` characters, each on a colour or on none. What does not fit is left out.
class Line {
 public:
  explicit Line(int64_t width) : text_(width, ' '), ground_(width) {}

  void Put(int64_t at, absl::string_view text);
  void Ground(int64_t from, int64_t length, Colour colour);

  // With its line end, without blanks before it; colours are off at its end.
  std::string Render(ColourDepth depth) const;

 private:
  std::string text_;
  std::vector<std::optional<Colour>> ground_;
};

// Parts on lines of `width`, `separator` between those on one line; later lines are indented. A
// part longer than a line is cut into pieces.
std::string Wrapped(const std::vector<std::string>& parts, absl::string_view separator,
                    int64_t width, int64_t indent);

}  // namespace cpshard::draw
