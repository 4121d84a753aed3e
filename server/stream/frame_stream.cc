#include "server/stream/frame_stream.h"

#include "absl/strings/str_cat.h"

namespace cpshard {

absl::Duration TimeFor(int64_t bytes, absl::Duration stall) {
  return 4 * stall + absl::Seconds(static_cast<double>(bytes) / static_cast<double>(kMinRate));
}

absl::Status Overdue(int64_t bytes, absl::Time begun, absl::Time moved, absl::Time input,
                     absl::Duration stall) {
  const bool silent = input - moved >= stall;
  const absl::Duration all = TimeFor(bytes, stall);
  if (!silent && input - begun < all) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "the batch was begun, but ",
      silent
          ? absl::StrCat("nothing of it came for ", absl::FormatDuration(stall))
          : absl::StrCat("its ", bytes, " bytes did not come within ", absl::FormatDuration(all))));
}

absl::Status LateRequest(absl::Duration patience) {
  return absl::DeadlineExceededError(
      absl::StrCat("the call was begun, but its request did not come whole within ",
                   absl::FormatDuration(patience)));
}

}  // namespace cpshard
