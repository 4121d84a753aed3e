// One loader process of `cpshard demo --chaos`.
#pragma once

#include "absl/status/status.h"
#include "client/cli/demo/chaos_report.h"
#include "client/cli/demo/chaos_work.h"

namespace cpshard::demo {

// Pushes the steps of this loader until all ranks are done. Reports every step that it makes.
// Errors: those of Loader::Wait; Internal: it was asked for a step out of order, or was rewound
// with a state that is not that of its step before.
absl::Status RunChaosLoader(const ChaosWork& work, int64_t loader, const ChaosReporter& reporter);

}  // namespace cpshard::demo
