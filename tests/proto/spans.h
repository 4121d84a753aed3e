// A message in pieces, as a transport hands it over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/frames.h"

namespace cpshard {

inline Bytes AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The message cut before the bytes `cuts` (ascending), windows on `message`.
inline std::vector<Bytes> CutAt(const std::string& message, std::vector<size_t> cuts) {
  cuts.push_back(message.size());
  std::vector<Bytes> spans;
  size_t begin = 0;
  for (size_t end : cuts) {
    spans.push_back(AsBytes(message).subspan(begin, end - begin));
    begin = end;
  }
  return spans;
}

inline std::string TextOf(const FrameBody& body) {
  std::string text;
  for (Bytes piece : body.pieces) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return text;
}

}  // namespace cpshard
