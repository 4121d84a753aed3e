// Several executors as one, for callers on several threads.
#pragma once

#include <memory>
#include <vector>

#include "core/exec/executor.h"

namespace cpshard {

// Thread-safe: as many Runs at a time as there are executors, each of which carries out one at a
// time; the next one waits for the first to become free. So one Run's copies go on beside another
// one's kernel. Called like the first. Precondition: not empty; all do the same.
std::unique_ptr<Executor> MakeExecutorSet(std::vector<std::unique_ptr<Executor>> executors);

}  // namespace cpshard
