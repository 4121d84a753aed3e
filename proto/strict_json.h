// Checks on JSON text before protobuf's reader, which is lenient: it takes single quotes and
// trailing commas, keeps the last of two equal keys, and rounds integers that 64 bits cannot hold.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cpshard {

// InvalidArgument, in one line that begins with `what`: not JSON, a key that is there twice in one
// object, an integer beyond 64 bits, a value nested deeper than 64.
absl::Status CheckStrictJson(absl::string_view text, absl::string_view what);

}  // namespace cpshard
