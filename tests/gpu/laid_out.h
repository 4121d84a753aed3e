// An executor that is handed vectors and never sees them: before a Run the memory of its tasks is
// laid into a pool, and what was written is brought back after it. So suites of pageable memory
// become suites of pinned memory, or of a device's.
#pragma once

#include <memory>

#include "core/exec/device/fixed_pool.h"
#include "core/exec/executor.h"

namespace cpshard {

// Every block of memory that tasks name, from its first byte to its last, lies in the pool as it
// did modulo 256, with bytes around it that nobody may touch. Run returns what `executor` says, and
//   ResourceExhausted: the pool is too small.
//   Internal: bytes around a block are not as they were, or a block that is read alone.
std::unique_ptr<Executor> MakeLaidOutExecutor(std::unique_ptr<Executor> executor, FixedPool pool);

}  // namespace cpshard
