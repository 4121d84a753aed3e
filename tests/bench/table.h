// The one table that the benchmark prints, and the same as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/bench/measure.h"

namespace cpshard::bench {

struct Row {
  std::string group;  // rows of one group were measured in turn
  std::string name;
  Stats value;
  std::string unit;
  // How good the row is against the group's anchors: > 1 is faster than the anchor.
  std::optional<Stats> of_anchor;
  std::optional<Stats> of_stream_copy;
  std::string goal;
};

class Table {
 public:
  // Prints the row at once: a run takes minutes.
  void Add(Row row);
  void PrintHead() const;
  std::string ToJson() const;

 private:
  std::vector<Row> rows_;
};

}  // namespace cpshard::bench
