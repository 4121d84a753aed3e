// Names in files are somebody else's: what a terminal would take for a command becomes a space.
#pragma once

#include <algorithm>
#include <string>

namespace cpshard {

inline std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text;
}

// The same, but for line ends.
inline std::string Printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f; },
      ' ');
  return text;
}

}  // namespace cpshard
