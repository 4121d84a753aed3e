#include "proto/error_details.h"

#include <algorithm>
#include <limits>

#include "absl/strings/cord.h"
#include "cpshard/rpc.pb.h"
#include "proto/error_payloads.h"
#include "proto/stable_bytes.h"
#include "proto/text.h"

namespace cpshard {
namespace {

// Metadata has 8 KiB altogether, and these travel in base64.
constexpr size_t kMaxReason = 64, kMaxKey = 64, kMaxValue = 256, kMaxValues = 1536;

absl::Cord InfoOf(const ErrorDetails& details) {
  rpc::ErrorInfo info;
  info.set_domain(kErrorDomain);
  info.set_reason(CutText(details.reason, kMaxReason));
  size_t size = 0;
  for (const auto& [key, value] : details.values) {
    const std::string name = CutText(key, kMaxKey), text = CutText(value, kMaxValue);
    size += name.size() + text.size();
    if (size > kMaxValues) break;
    (*info.mutable_metadata())[name] = text;
  }
  return absl::Cord(StableBytes(info));
}

// Whole milliseconds, as in the messages of streams.
absl::Cord RetryOf(absl::Duration after) {
  constexpr int64_t kMax = std::numeric_limits<uint32_t>::max();
  const int64_t ms = std::clamp<int64_t>(
      absl::ToInt64Milliseconds(absl::Ceil(after, absl::Milliseconds(1))), 0, kMax);
  rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(ms / 1000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(ms % 1000 * 1'000'000));
  return absl::Cord(StableBytes(retry));
}

}  // namespace

absl::Status WithDetails(absl::Status status, const ErrorDetails& details) {
  if (status.ok()) return status;
  status.ErasePayload(kErrorInfoUrl);
  status.ErasePayload(kRetryInfoUrl);
  if (!details.reason.empty() || !details.values.empty()) {
    status.SetPayload(kErrorInfoUrl, InfoOf(details));
  }
  if (details.retry_after) status.SetPayload(kRetryInfoUrl, RetryOf(*details.retry_after));
  return status;
}

std::optional<ErrorDetails> DetailsOf(const absl::Status& status) {
  ErrorDetails details;
  bool any = false;
  rpc::ErrorInfo info;
  const auto info_bytes = status.GetPayload(kErrorInfoUrl);
  if (info_bytes && info.ParseFromString(std::string(*info_bytes)) &&
      info.domain() == kErrorDomain) {
    any = true;
    details.reason = info.reason();
    details.values = {info.metadata().begin(), info.metadata().end()};
  }
  rpc::RetryInfo retry;
  const auto retry_bytes = status.GetPayload(kRetryInfoUrl);
  if (retry_bytes && retry.ParseFromString(std::string(*retry_bytes))) {
    any = true;
    details.retry_after = absl::Seconds(retry.retry_delay().seconds()) +
                          absl::Nanoseconds(retry.retry_delay().nanos());
  }
  if (!any) return std::nullopt;
  return details;
}

}  // namespace cpshard
