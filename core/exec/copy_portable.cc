// StreamCopy where no streaming store is written yet: a plain copy.
#include <cstring>

#include "core/exec/copy.h"

namespace cpshard {

void StreamCopy(std::byte* dest, const std::byte* source, size_t size) {
  if (size > 0) std::memcpy(dest, source, size);
}

void StreamCopyFence() {}

}  // namespace cpshard
