#include "proto/status_codec.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "proto/text.h"

namespace cpshard {

void EncodeStatus(const absl::Status& status, v1::BatchStatus* message) {
  message->set_code(static_cast<uint32_t>(status.code()));
  message->set_message(CutText(OneLineText(status.message())));
  const std::optional<ErrorDetails> details = DetailsOf(status);
  if (!details) return;
  message->set_reason(details->reason);
  message->mutable_values()->insert(details->values.begin(), details->values.end());
  if (!details->retry_after) return;
  message->set_retry_after_ms(static_cast<uint32_t>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(*details->retry_after), 0, std::numeric_limits<uint32_t>::max())));
}

absl::Status DecodeStatus(const v1::BatchStatus& message) {
  const bool known = message.code() >= 1 && message.code() <= 16;
  absl::Status status =
      known ? absl::Status(static_cast<absl::StatusCode>(message.code()), message.message())
            : absl::UnknownError(
                  absl::StrCat("status code ", message.code(), ": ", message.message()));
  ErrorDetails details{message.reason(), {message.values().begin(), message.values().end()}, {}};
  if (message.has_retry_after_ms()) {
    details.retry_after = absl::Milliseconds(message.retry_after_ms());
  }
  return WithDetails(std::move(status), details);
}

}  // namespace cpshard
