#include "proto/status.h"

#include "proto/text.h"

namespace cpshard {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // A long name in the text must not turn the error into another one.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), CutText(status.message()));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace cpshard
