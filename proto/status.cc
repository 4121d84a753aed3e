#include "proto/status.h"

#include <string>

namespace cpshard {
namespace {

constexpr size_t kMaxText = 2048;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The text travels as metadata, which is bounded: a long name in it must not turn the error into
  // another one.
  std::string text(status.message());
  if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), text);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace cpshard
