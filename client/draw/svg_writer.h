// Elements of an SVG file, as text. Numbers have two decimals at most, so that a file is the same
// on every machine; text is escaped.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cpshard::draw {

class SvgWriter {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  // `paint` is an attribute: class="d0" or fill="#482c90".
  void Rect(double x, double y, double width, double height, absl::string_view paint);
  void Line(double x1, double y1, double x2, double y2, absl::string_view paint);
  // The baseline of the text is at y.
  void Text(double x, double y, absl::string_view text, absl::string_view paint,
            Anchor anchor = Anchor::kStart);
  void Raw(absl::string_view markup) { out_.append(markup.data(), markup.size()); }

  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

std::string SvgNumber(double number);  // "12", "12.5", "-0.25"

// For element content and attribute values; control characters become blanks.
std::string SvgEscaped(absl::string_view text);

// The text if it has at most `characters` bytes, else its beginning and "...".
std::string SvgClipped(absl::string_view text, size_t characters);

}  // namespace cpshard::draw
