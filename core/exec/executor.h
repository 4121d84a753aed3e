// Executor: carries out tasks at one place (a CPU, a GPU) in order. One verb.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/exec/task.h"

namespace cpshard {

class Executor {
 public:
  virtual ~Executor() = default;

  // Carries out `tasks` one after the other; a later task may read what an earlier one wrote. On
  // return all bytes are written, but of an executor that was asked to return early (see
  // DeviceExecutorOptions). The memory the tasks name belongs to the caller.
  virtual absl::Status Run(absl::Span<const Task> tasks) = 0;

  virtual absl::string_view name() const = 0;  // "cpu"
};

// When copies are written past the cache (streaming stores): a saving of memory traffic that costs
// the next stage its warm cache. The defaults are measured (tests/bench).
struct CpuExecutorOptions {
  // From this many bytes in one Run on. Less fits the cache, and the next stage reads it there.
  int64_t stream_total_bytes = int64_t{4} << 20;

  // For tasks whose moves have this many bytes on average: gathering cache lines out of shorter
  // ones costs more than it saves.
  int64_t stream_run_bytes = 64;

  // For tasks that read this many bytes on end before they jump. All ranks in one pass read a row
  // on end; one rank alone jumps after each run, and then waits for memory, not for the stores.
  int64_t stream_read_bytes = 2048;
};

// Thread-safe (stateless); runs on the calling thread.
std::unique_ptr<Executor> MakeCpuExecutor(CpuExecutorOptions options = {});

}  // namespace cpshard
