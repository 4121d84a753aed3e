// What processes have used so far: their own processor clocks and the kernel's fault counts.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace cpshard::bench {

struct Usage {
  double cpu_seconds = 0;  // user and system, all threads
  int64_t minor_faults = 0;
};

// Of a process that lives. Pid 0: nothing used.
Usage UsageOf(pid_t pid);

}  // namespace cpshard::bench
