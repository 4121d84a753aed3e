// Values that a plan computes, written out.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/plan/plan.h"

namespace cpshard {

inline std::vector<int64_t> WrittenOut(const std::vector<Segment>& segments) {
  std::vector<int64_t> values;
  for (const Segment& segment : segments) {
    for (int64_t i = 0; i < segment.length; ++i) values.push_back(segment.start + segment.step * i);
  }
  return values;
}

// Row by row; fails where the values are not generated ones.
inline std::vector<std::vector<int64_t>> WrittenOut(const Expression& expression) {
  const Generated* generated = std::get_if<Generated>(&expression.from);
  if (generated == nullptr) {
    ADD_FAILURE() << "not generated";
    return {};
  }
  std::vector<std::vector<int64_t>> rows;
  for (const std::vector<Segment>& row : generated->rows) rows.push_back(WrittenOut(row));
  return rows;
}

}  // namespace cpshard
