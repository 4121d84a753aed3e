// Crc32c for processors whose own instruction is not used here.
#include "core/batch/crc32c.h"

namespace cpshard {

uint32_t Crc32c(absl::Span<const std::byte> bytes, uint32_t crc) {
  return Crc32cByTable(bytes, crc);
}

}  // namespace cpshard
