// A status inside a message. Used inside proto/ only.
#pragma once

#include "absl/status/status.h"
#include "cpshard/v1/types.pb.h"

namespace cpshard {

// With its ErrorDetails. Precondition: it is not OK.
void EncodeStatus(const absl::Status& status, v1::BatchStatus* message);

// A code that gRPC does not have becomes UNKNOWN, with the number in the text.
absl::Status DecodeStatus(const v1::BatchStatus& message);

}  // namespace cpshard
