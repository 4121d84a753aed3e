#include "client/cli/bench/processor_time.h"

#include <time.h>

namespace cpshard::bench {

// Finer than /proc/PID/stat, which counts in ticks of 10 ms.
std::optional<double> ProcessorSeconds(pid_t pid) {
  clockid_t clock;
  timespec used{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
    return std::nullopt;
  }
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace cpshard::bench
