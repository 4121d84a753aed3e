// A line to the process that started this one.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cpshard::demo {

// Adds the line's end, and writes it at once: who is killed has written up to 4 KB (PIPE_BUF) whole
// or not at all. FailedPrecondition: nobody reads `out`.
absl::Status WriteLine(int out, std::string line);

// Blocks until a line, or the end, of `in`.
void AwaitLine(int in);

}  // namespace cpshard::demo
