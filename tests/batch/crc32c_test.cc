#include "core/batch/crc32c.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/string_view.h"

namespace cpshard {
namespace {

using Bytes = absl::Span<const std::byte>;

Bytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// One bit at a time, as the polynomial is defined.
uint32_t BitByBit(Bytes bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

class EveryCrc32c : public testing::TestWithParam<uint32_t (*)(Bytes, uint32_t)> {};

INSTANTIATE_TEST_SUITE_P(Both, EveryCrc32c, testing::Values(&Crc32c, &Crc32cByTable));

TEST_P(EveryCrc32c, GivesTheStandardCheckValue) {
  EXPECT_EQ(GetParam()(BytesOf("123456789"), 0), 0xE3069283u);
}

// RFC 3720, B.4.
TEST_P(EveryCrc32c, GivesTheValuesOfISCSI) {
  std::vector<std::byte> ascending(32);
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<std::byte>(i);
  EXPECT_EQ(GetParam()(std::vector<std::byte>(32), 0), 0x8A9136AAu);
  EXPECT_EQ(GetParam()(std::vector<std::byte>(32, std::byte{0xFF}), 0), 0x62A8AB43u);
  EXPECT_EQ(GetParam()(ascending, 0), 0x46DD794Eu);
}

TEST_P(EveryCrc32c, OfNothingIsZero) { EXPECT_EQ(GetParam()({}, 0), 0u); }

TEST_P(EveryCrc32c, AgreesWithTheDefinitionAtEveryLengthAndAlignment) {
  std::vector<std::byte> bytes(200);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  for (size_t first = 0; first < 9; ++first) {
    for (size_t size = 0; first + size <= bytes.size(); ++size) {
      const Bytes part = Bytes(bytes).subspan(first, size);
      ASSERT_EQ(GetParam()(part, 0), BitByBit(part)) << first << " " << size;
    }
  }
}

TEST_P(EveryCrc32c, GoesOnFromTheChecksumOfWhatLiesBefore) {
  const absl::string_view text = "a body may come in pieces of any length";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = GetParam()(BytesOf(text.substr(0, cut)), 0);
    EXPECT_EQ(GetParam()(BytesOf(text.substr(cut)), first), BitByBit(BytesOf(text))) << cut;
  }
}

}  // namespace
}  // namespace cpshard
