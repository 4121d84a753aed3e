#include "client/draw/terminal_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cpshard::draw {
namespace {

std::string Escape(Colour colour, ColourDepth depth) {
  const Colour ink = InkOn(colour);
  if (depth == ColourDepth::k256) {
    return absl::StrFormat("\033[38;5;%d;48;5;%dm", ink.red == 0 ? 16 : 231, Ansi256(colour));
  }
  return absl::StrFormat("\033[38;2;%d;%d;%d;48;2;%d;%d;%dm", ink.red, ink.green, ink.blue,
                         colour.red, colour.green, colour.blue);
}

}  // namespace

void Line::Put(int64_t at, absl::string_view text) {
  for (const char character : text) {
    if (at >= 0 && at < static_cast<int64_t>(text_.size())) text_[at] = character;
    ++at;
  }
}

void Line::Ground(int64_t from, int64_t length, Colour colour) {
  const int64_t end = std::min(from + length, static_cast<int64_t>(ground_.size()));
  for (int64_t i = from; i < end; ++i) ground_[i] = colour;
}

std::string Line::Render(ColourDepth depth) const {
  const bool plain = depth == ColourDepth::kNone;
  size_t end = text_.size();
  while (end > 0 && text_[end - 1] == ' ' && (plain || !ground_[end - 1])) --end;
  std::string out;
  std::optional<Colour> now;
  for (size_t i = 0; i < end; ++i) {
    if (!plain && ground_[i] != now) {
      now = ground_[i];
      out += now ? Escape(*now, depth) : "\033[0m";
    }
    out += text_[i];
  }
  if (now) out += "\033[0m";
  return out + "\n";
}

std::string Wrapped(const std::vector<std::string>& parts, absl::string_view separator,
                    int64_t width, int64_t indent) {
  const absl::string_view at_end = absl::StripTrailingAsciiWhitespace(separator);
  std::string out, line;
  for (const std::string& part : parts) {
    const size_t length = line.size() + separator.size() + part.size() + at_end.size();
    if (!line.empty() && static_cast<int64_t>(length) > width) {
      absl::StrAppend(&out, line, at_end, "\n");
      line = std::string(indent, ' ');
    } else if (!line.empty()) {
      absl::StrAppend(&line, separator);
    }
    line += part;
    while (static_cast<int64_t>(line.size()) > width) {
      absl::StrAppend(&out, line.substr(0, width), "\n");
      line = absl::StrCat(std::string(indent, ' '), line.substr(width));
    }
  }
  return absl::StrCat(out, line, "\n");
}

}  // namespace cpshard::draw
