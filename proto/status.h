// The one translation between absl::Status and grpc::Status. The code numbers are the same;
// ErrorDetails become the details of the status, which any gRPC client can read.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace cpshard {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace cpshard
