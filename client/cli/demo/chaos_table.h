// What `cpshard demo --chaos` prints.
#pragma once

#include <cstdint>

#include "client/cli/demo/chaos.h"

namespace cpshard::demo {

// What is run, before it is.
void PrintChaos(const ChaosWork& work, uint64_t seed);

// A line per kill, and the verdict.
void PrintChaosFigures(const ChaosWork& work, const ChaosFigures& figures);

}  // namespace cpshard::demo
