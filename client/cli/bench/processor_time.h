// What processes have used of the processors.
#pragma once

#include <sys/types.h>

#include <optional>

namespace cpshard::bench {

// Seconds since its start, user and system, of all threads; nullopt: there is no such process.
std::optional<double> ProcessorSeconds(pid_t pid);

}  // namespace cpshard::bench
