// What an error says to a program beside its code and text: a stable reason and named values.
// Stands on an absl::Status as a payload; on the wire it is google.rpc.ErrorInfo (domain "cpshard")
// and RetryInfo.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cpshard {

struct ErrorDetails {
  std::string reason;                         // "STALE_GENERATION", "END_OF_STREAM", ...
  std::map<std::string, std::string> values;  // "end_step" -> "40"
  std::optional<absl::Duration> retry_after;  // the same may succeed after so long; whole ms
  friend bool operator==(const ErrorDetails&, const ErrorDetails&) = default;
};

// The status with `details` in place of those that it has. OK stays OK. A status travels as
// metadata, which gRPC bounds: a value is cut at 256 bytes, and of values over 1.5 KiB together the
// last ones are left out.
absl::Status WithDetails(absl::Status status, const ErrorDetails& details);

std::optional<ErrorDetails> DetailsOf(const absl::Status& status);

}  // namespace cpshard
