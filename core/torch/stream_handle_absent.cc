// Built against a torch older than 2.11.
#include "core/torch/stream_handle.h"

namespace cpshard {

absl::Status StreamsTellTheirHandles() {
  return absl::UnimplementedError(
      "libcpshard_torch.so was built against a torch older than 2.11, whose streams do not tell "
      "their handles: build it against 2.11 or newer");
}

void* HandleOf(const c10::Stream&) { return nullptr; }

}  // namespace cpshard
