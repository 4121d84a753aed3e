// The measurements of gpu_check: how fast jobs are beside plain copies of the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/gpu/row.h"

namespace cpshard {

struct GpuRowOptions {
  int64_t shrink = 1;   // so many times smaller jobs over as much less memory, for a rehearsal
  int rounds = 21;      // pairs of a row; of one through pageable memory 3 at most
  bool decides = true;  // whether rows have goals, which are for whole jobs on a GPU
};

// Takes about a minute. Of every job: its launches alone, that is the kernel, for pieces of several
// sizes, the default of which decides; and Executor::Run from end to end between memory of all
// kinds, which decides nothing, with the part of it that the host makes its lists in. Before
// anything is timed, one walk of each side has to leave the right bytes at every place. A row that
// cannot be measured says why; no row is left out. Calls done(row) after each.
std::vector<GpuRow> MeasureGpu(
    const GpuRowOptions& options,
    const std::function<void(const GpuRow&)>& done = [](const GpuRow&) {});

}  // namespace cpshard
