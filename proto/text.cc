#include "proto/text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/escaping.h"

namespace cpshard {
namespace {

// Bytes of the character that `text` starts with; 0: of UTF-8 it is none.
size_t CharacterSize(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) >= 0xA0;
  const bool too_large = first == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : size;
}

}  // namespace

std::string CutText(absl::string_view text, size_t max_bytes) {
  std::string cut;
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    const absl::string_view character = size > 0 ? text.substr(0, size) : "?";
    if (cut.size() + character.size() > max_bytes) return cut + "...";
    cut.append(character.data(), character.size());
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return cut;
}

std::string OneLineText(absl::string_view text) {
  std::string line;
  for (const char& c : text) {
    const bool control = static_cast<uint8_t>(c) < ' ' || c == '\x7f';
    line += control ? absl::CHexEscape(absl::string_view(&c, 1)) : std::string(1, c);
  }
  return line;
}

}  // namespace cpshard
