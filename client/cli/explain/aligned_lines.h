// Labelled lines whose texts begin in one column.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cpshard::explain {

class AlignedLines {
 public:
  void Add(std::string label, std::string text) {
    width_ = std::max(width_, label.size() + 2);
    lines_.emplace_back(std::move(label), std::move(text));
  }
  void AddBreak() { lines_.emplace_back(); }

  std::string ToString() const {
    std::string all;
    for (const auto& [label, text] : lines_) {
      if (!label.empty() || !text.empty()) {
        all += label + std::string(width_ - label.size(), ' ') + text;
      }
      all += '\n';
    }
    return all;
  }

 private:
  size_t width_ = 0;
  std::vector<std::pair<std::string, std::string>> lines_;
};

}  // namespace cpshard::explain
