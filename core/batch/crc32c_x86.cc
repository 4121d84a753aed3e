// Crc32c for x86-64: the instruction of SSE4.2, which is not part of the base instruction set.
#include <nmmintrin.h>

#include <cstring>

#include "core/batch/crc32c.h"

namespace cpshard {
namespace {

__attribute__((target("sse4.2"))) uint32_t ByInstruction(absl::Span<const std::byte> bytes,
                                                         uint32_t crc) {
  uint64_t wide = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof wide; at += sizeof wide, left -= sizeof wide) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  uint32_t narrow = static_cast<uint32_t>(wide);
  for (; left > 0; ++at, --left) narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(*at));
  return ~narrow;
}

}  // namespace

uint32_t Crc32c(absl::Span<const std::byte> bytes, uint32_t crc) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  return has_instruction ? ByInstruction(bytes, crc) : Crc32cByTable(bytes, crc);
}

}  // namespace cpshard
