// An error that leaves the process without its device until it is started again. What CUDA calls a
// sticky error.
#pragma once

#include "absl/status/status.h"

namespace cpshard {

// Of a program that ends for it.
inline constexpr int kDeviceLostExitCode = 86;

// `status`, marked so. The mark is kept when the status is passed on.
absl::Status DeviceLost(absl::Status status);

bool IsDeviceLost(const absl::Status& status);

}  // namespace cpshard
