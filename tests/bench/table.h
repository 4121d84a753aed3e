// The one table that the benchmark prints, and the same as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/bench/measure.h"

namespace cpshard::bench {

// What the median of a figure of a row should be. Nothing fails when it is not.
struct Goal {
  enum class Figure { kValue, kOfAnchor };
  enum class Bound { kAtLeast, kAtMost };

  Figure figure;
  Bound bound;
  double number;
};
Goal ValueAtMost(double number);
Goal OfAnchorAtLeast(double number);

struct Row {
  std::string group;  // rows of one group were measured in turn
  std::string name;
  Stats value;
  std::string unit;
  // How good the row is against the group's anchors: 2 is twice as fast as the anchor.
  std::optional<Stats> of_anchor;
  std::optional<Stats> of_stream_copy;
  std::string anchor = {};  // the name of the group's anchor; empty: the row is one, or has none
  std::vector<Goal> goals = {};
};

// "<= 10 us, >= 0.8 of the anchor"
std::string GoalText(const Row& row);

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
