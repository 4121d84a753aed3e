// Tasks cut into smaller ones, for a device whose memory does not hold all that one touches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/exec/task.h"

namespace cpshard {

// Tasks that write in order what `task` writes, about `parts` of them, at least two: by outer
// index, by move, by column, by element, whichever comes first. Each writes less than `task` does.
// Empty: there is no more than one element.
std::vector<Task> SplitTask(const Task& task, int64_t parts);

}  // namespace cpshard
