// Whether a case that is not driven could be read.
#pragma once

#include "absl/status/status.h"
#include "tests/conformance/input.h"

namespace cpshard::conformance {

// Decodes every value of the case: batch, layout argument, expectation. For a case that is skipped,
// so that nobody is going to answer it. InvalidArgument, naming what cannot be read.
absl::Status CheckReadable(const Case& item);

}  // namespace cpshard::conformance
