#include "server/to_peer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch/buffer.h"
#include "core/exec/device/device_lost.h"
#include "proto/error_details.h"

namespace cpshard {

absl::Status ToPeer(absl::Status status) {
  if (IsDeviceLost(status)) {
    return WithDetails(std::move(status), {.reason = "DEVICE_LOST", .retry_after = kRetryLost});
  }
  if (!absl::IsResourceExhausted(status) || DetailsOf(status)) return status;
  if (NeverFits(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat(status.message(),
                     ": waiting does not help; make batches smaller, or give the server more "
                     "pool_bytes (sessions: session_bytes; a device: cuda_memory_bytes)"));
  }
  return WithDetails(std::move(status), {.reason = "BUDGET", .retry_after = kRetrySoon});
}

absl::Status ShuttingDown() {
  return WithDetails(absl::UnavailableError("the server is shutting down; try another"),
                     {.reason = "DRAINING", .retry_after = kRetryDrain});
}

}  // namespace cpshard
