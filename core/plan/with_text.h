// A status that says more, and means the same.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace cpshard {

// Code and payloads of `status`, with another text.
inline absl::Status WithText(const absl::Status& status, absl::string_view text) {
  absl::Status told(status.code(), text);
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { told.SetPayload(url, payload); });
  return told;
}

}  // namespace cpshard
