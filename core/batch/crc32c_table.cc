#include <array>
#include <bit>
#include <cstring>

#include "core/batch/crc32c.h"

namespace cpshard {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
constexpr size_t kWord = 8;                   // bytes taken at a time

using Tables = std::array<std::array<uint32_t, 256>, kWord>;

// tables[k][b]: what byte b does to the checksum when k more bytes follow it.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kWord; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

static_assert(std::endian::native == std::endian::little);

}  // namespace

uint32_t Crc32cByTable(absl::Span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= kWord; at += kWord, left -= kWord) {
    uint64_t word;
    std::memcpy(&word, at, kWord);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < kWord; ++k) crc ^= kTables[kWord - 1 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; left > 0; ++at, --left) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(*at)) & 0xFF];
  }
  return ~crc;
}

}  // namespace cpshard
