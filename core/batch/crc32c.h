// CRC-32C (Castagnoli), the checksum of the bodies of a stream. One file per processor family
// implements it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace cpshard {

// Of `bytes`; with the checksum of what lies before them as `crc`, of both together.
uint32_t Crc32c(absl::Span<const std::byte> bytes, uint32_t crc = 0);

// The same by tables, on any processor.
uint32_t Crc32cByTable(absl::Span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace cpshard
