// The handle of a torch stream, as the calls of its device take it. Behind this header is one of
// two files: torch tells it from 2.11 on (stream_handle.cc); of an older one
// stream_handle_absent.cc says so, and the rest of the library is built all the same.
#pragma once

#include <c10/core/Stream.h>

#include "absl/status/status.h"

namespace cpshard {

// OK, or Unimplemented: built against a torch that does not tell.
absl::Status StreamsTellTheirHandles();

// Null of a default stream. Precondition: they tell.
void* HandleOf(const c10::Stream& stream);

}  // namespace cpshard
