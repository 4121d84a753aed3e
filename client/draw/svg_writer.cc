#include "client/draw/svg_writer.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace cpshard::draw {

std::string SvgNumber(double number) {
  const int64_t hundredths = std::llround(number * 100);
  const int64_t whole = std::abs(hundredths) / 100, rest = std::abs(hundredths) % 100;
  std::string text = absl::StrCat(hundredths < 0 ? "-" : "", whole);
  if (rest == 0) return text;
  absl::StrAppend(&text, ".", rest / 10);
  if (rest % 10 != 0) absl::StrAppend(&text, rest % 10);
  return text;
}

std::string SvgEscaped(absl::string_view text) {
  std::string out;
  for (const char character : text) {
    switch (character) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(character) < 0x20 ? ' ' : character;
    }
  }
  return out;
}

std::string SvgClipped(absl::string_view text, size_t characters) {
  if (text.size() <= characters) return std::string(text);
  size_t end = characters - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // UTF-8
  return absl::StrCat(text.substr(0, end), "...");
}

void SvgWriter::Rect(double x, double y, double width, double height, absl::string_view paint) {
  absl::StrAppend(&out_, "<rect x=\"", SvgNumber(x), "\" y=\"", SvgNumber(y), "\" width=\"",
                  SvgNumber(width), "\" height=\"", SvgNumber(height), "\" ", paint, "/>\n");
}

void SvgWriter::Line(double x1, double y1, double x2, double y2, absl::string_view paint) {
  absl::StrAppend(&out_, "<line x1=\"", SvgNumber(x1), "\" y1=\"", SvgNumber(y1), "\" x2=\"",
                  SvgNumber(x2), "\" y2=\"", SvgNumber(y2), "\" ", paint, "/>\n");
}

void SvgWriter::Text(double x, double y, absl::string_view text, absl::string_view paint,
                     Anchor anchor) {
  absl::StrAppend(&out_, "<text x=\"", SvgNumber(x), "\" y=\"", SvgNumber(y), "\"",
                  paint.empty() ? "" : " ", paint);
  if (anchor == Anchor::kMiddle) absl::StrAppend(&out_, " text-anchor=\"middle\"");
  if (anchor == Anchor::kEnd) absl::StrAppend(&out_, " text-anchor=\"end\"");
  absl::StrAppend(&out_, ">", SvgEscaped(text), "</text>\n");
}

}  // namespace cpshard::draw
