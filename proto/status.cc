#include "proto/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "cpshard/rpc.pb.h"
#include "proto/error_payloads.h"
#include "proto/text.h"

namespace cpshard {
namespace {

constexpr size_t kMaxTextBesideDetails = 1024;  // which have the text once more

// The metadata grpc-status-details-bin; empty: the status has no details.
std::string DetailsMetadata(const absl::Status& status, const std::string& text) {
  rpc::Status message;
  for (const char* url : {kErrorInfoUrl, kRetryInfoUrl}) {
    const auto payload = status.GetPayload(url);
    if (!payload) continue;
    google::protobuf::Any* detail = message.add_details();
    detail->set_type_url(url);
    detail->set_value(std::string(*payload));
  }
  if (message.details().empty()) return "";
  message.set_code(static_cast<int>(status.code()));
  message.set_message(text);
  return message.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  // A long name in the text must not turn the error into another one.
  const std::string whole = OneLineText(status.message());
  const std::string text = CutText(whole, kMaxTextBesideDetails);
  const std::string details = DetailsMetadata(status, text);
  if (details.empty()) return grpc::Status(code, CutText(whole));
  return grpc::Status(code, text, details);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  rpc::Status message;
  if (!message.ParseFromString(status.error_details())) return result;
  for (const google::protobuf::Any& detail : message.details()) {
    for (const char* url : {kErrorInfoUrl, kRetryInfoUrl}) {
      if (detail.type_url() == url) result.SetPayload(url, absl::Cord(detail.value()));
    }
  }
  return result;
}

}  // namespace cpshard
