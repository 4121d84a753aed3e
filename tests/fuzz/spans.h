// A message in pieces, each an allocation of its own: a read beyond a piece is seen by the
// sanitizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/frames.h"

namespace cpshard::fuzz {

class Spans {
 public:
  // Pieces of 0 ... `longest` bytes, pseudo-random; longest 0: a single piece.
  Spans(absl::string_view message, uint8_t longest) {
    uint32_t state = longest;
    while (!message.empty()) {
      state = state * 1664525 + 1013904223;
      const size_t size = longest == 0 ? message.size() : (state >> 16) % (longest + 1u);
      Add(message.substr(0, size));
      message.remove_prefix(std::min(size, message.size()));
    }
  }

  absl::Span<const Bytes> get() const { return spans_; }

 private:
  void Add(absl::string_view piece) {
    owned_.push_back(std::make_unique<std::byte[]>(piece.size()));
    if (!piece.empty()) std::memcpy(owned_.back().get(), piece.data(), piece.size());
    spans_.push_back({owned_.back().get(), piece.size()});
  }

  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::vector<Bytes> spans_;
};

inline std::string TextOf(const FrameBody& body) {
  std::string text;
  for (Bytes piece : body.pieces) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return text;
}

}  // namespace cpshard::fuzz
