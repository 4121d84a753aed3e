// The bytes that a task reads and writes, found by walking its moves one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/exec/task.h"

namespace cpshard {

// The bytes [begin, end) after a pointer, and all between them; empty: none.
struct Hull {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  void Include(int64_t from, int64_t to);
};

struct TaskFootprint {
  Hull source;
  std::vector<Hull> dests;
};

TaskFootprint FootprintOfTask(const Task& task);

}  // namespace cpshard
