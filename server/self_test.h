// Whether an executor does what the CPU's does, before anybody gets shards of it.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "core/batch/buffer.h"
#include "core/exec/executor.h"

namespace cpshard {

// Shards small batches of several layouts, whose tensors and shards lie in ordinary memory, and
// where there are `blocks` in those; some milliseconds. Internal, naming the first byte that
// differs from the CPU's; else what the executor or the memory says.
absl::Status TestExecutor(Executor& executor, const std::shared_ptr<BlockSource>& blocks);

}  // namespace cpshard
