// Fill values (contract 2.2, decision D5).
#include "core/plan/element.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace cpshard {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The low bytes of the element as an integer of its width, sign extended.
int64_t AsInteger(Element element, DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return static_cast<uint8_t>(element.bits);
    case DType::kI8:
      return static_cast<int8_t>(element.bits);
    case DType::kI16:
      return static_cast<int16_t>(element.bits);
    case DType::kI32:
      return static_cast<int32_t>(element.bits);
    default:
      return static_cast<int64_t>(element.bits);
  }
}

void ExpectInteger(Number value, DType dtype, int64_t expected) {
  const absl::StatusOr<Element> element = ConvertFill(value, dtype, "labels");
  ASSERT_TRUE(element.ok()) << element.status();
  EXPECT_EQ(AsInteger(*element, dtype), expected) << ToString(value) << " " << DTypeName(dtype);
}

void ExpectBits(Number value, DType dtype, uint64_t expected) {
  const absl::StatusOr<Element> element = ConvertFill(value, dtype, "labels");
  ASSERT_TRUE(element.ok()) << element.status();
  const uint64_t mask =
      ItemSize(dtype) == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * ItemSize(dtype))) - 1;
  EXPECT_EQ(element->bits & mask, expected) << ToString(value) << " " << DTypeName(dtype);
}

void ExpectRefused(Number value, DType dtype, absl::string_view value_text) {
  const absl::StatusOr<Element> element = ConvertFill(value, dtype, "teacher_ids");
  ASSERT_FALSE(element.ok()) << ToString(value) << " was taken by " << DTypeName(dtype);
  EXPECT_EQ(element.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(element.status().message()), HasSubstr("teacher_ids"));
  EXPECT_THAT(std::string(element.status().message()), HasSubstr(std::string(value_text)));
  EXPECT_THAT(std::string(element.status().message()), HasSubstr(std::string(DTypeName(dtype))));
}

TEST(Element, BoolIsValueNotZero) {
  ExpectInteger(int64_t{0}, DType::kBool, 0);
  ExpectInteger(int64_t{1}, DType::kBool, 1);
  ExpectInteger(int64_t{7}, DType::kBool, 1);
  ExpectInteger(0.0, DType::kBool, 0);
  ExpectInteger(-0.0, DType::kBool, 0);
  ExpectInteger(0.25, DType::kBool, 1);
  ExpectInteger(kNan, DType::kBool, 1);
}

TEST(Element, AnIntegerTargetTruncatesTowardZero) {
  for (DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    ExpectInteger(2.9, dtype, 2);
    ExpectInteger(-2.9, dtype, -2);
    ExpectInteger(-0.9, dtype, 0);
    ExpectInteger(int64_t{-100}, dtype, -100);
  }
  ExpectInteger(254.9, DType::kU8, 254);
  ExpectInteger(126.9, DType::kI8, 126);
  ExpectInteger(-127.9, DType::kI8, -127);
}

TEST(Element, AValueOutOfRangeIsNotSavedByTruncation) {
  ExpectRefused(255.5, DType::kU8, "255.5");
  ExpectRefused(127.5, DType::kI8, "127.5");
  ExpectRefused(-128.5, DType::kI8, "-128.5");
}

TEST(Element, EveryIntegerDTypeTakesItsWholeRangeAndNoMore) {
  const struct {
    DType dtype;
    int64_t low, high;
  } ranges[] = {{DType::kU8, 0, 255},
                {DType::kI8, -128, 127},
                {DType::kI16, -32768, 32767},
                {DType::kI32, -2147483648, 2147483647}};
  for (const auto& range : ranges) {
    ExpectInteger(range.low, range.dtype, range.low);
    ExpectInteger(range.high, range.dtype, range.high);
    ExpectRefused(range.low - 1, range.dtype, std::to_string(range.low - 1));
    ExpectRefused(range.high + 1, range.dtype, std::to_string(range.high + 1));
    ExpectRefused(static_cast<double>(range.high + 1), range.dtype, "");
  }
  const int64_t low = std::numeric_limits<int64_t>::min();
  const int64_t high = std::numeric_limits<int64_t>::max();
  ExpectInteger(low, DType::kI64, low);
  ExpectInteger(high, DType::kI64, high);
  ExpectInteger(-0x1p63, DType::kI64, low);
  ExpectRefused(0x1p63, DType::kI64, "9.22337e+18");
}

TEST(Element, NanAndInfinityDoNotGoIntoAnInteger) {
  for (DType dtype : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    ExpectRefused(kNan, dtype, "nan");
    ExpectRefused(kInfinity, dtype, "inf");
    ExpectRefused(-kInfinity, dtype, "-inf");
  }
}

TEST(Element, AnUnsignedDTypeRefusesEveryNegativeValue) {
  for (DType dtype : {DType::kBool, DType::kU8}) {
    ExpectRefused(int64_t{-100}, dtype, "-100");
    ExpectRefused(int64_t{-1}, dtype, "-1");
    ExpectRefused(-3.5, dtype, "-3.5");
    ExpectRefused(-0.5, dtype, "-0.5");
  }
}

TEST(Element, AFloatingTargetHoldsTheBitsOfTheFormat) {
  ExpectBits(int64_t{-100}, DType::kF64, std::bit_cast<uint64_t>(-100.0));
  ExpectBits(int64_t{-100}, DType::kF32, std::bit_cast<uint32_t>(-100.0f));
  ExpectBits(int64_t{-100}, DType::kF16, 0xd640);   // -(1 + 0x240/1024) * 2^6
  ExpectBits(int64_t{-100}, DType::kBF16, 0xc2c8);  // the upper half of the float
  ExpectBits(-0.0, DType::kF32, 0x80000000u);
  ExpectBits(1.0, DType::kF16, 0x3c00);
  ExpectBits(65504.0, DType::kF16, 0x7bff);
}

TEST(Element, AFloatingTargetRoundsToNearestEven) {
  ExpectBits(int64_t{16777217}, DType::kF32, std::bit_cast<uint32_t>(16777216.0f));
  ExpectBits(int64_t{16777219}, DType::kF32, std::bit_cast<uint32_t>(16777220.0f));
  ExpectBits(int64_t{2049}, DType::kF16, 0x6800);  // between 2048 and 2050: to even
  ExpectBits(int64_t{2051}, DType::kF16, 0x6802);  // between 2050 and 2052: to even
  ExpectBits(int64_t{257}, DType::kBF16, 0x4380);  // between 256 and 258
}

TEST(Element, NanAndInfinityStayThemselvesInAFloat) {
  ExpectBits(kInfinity, DType::kF16, 0x7c00);
  ExpectBits(-kInfinity, DType::kBF16, 0xff80);
  ExpectBits(kInfinity, DType::kF32, 0x7f800000u);
  const absl::StatusOr<Element> nan = ConvertFill(kNan, DType::kF64, "labels");
  ASSERT_TRUE(nan.ok());
  EXPECT_TRUE(std::isnan(std::bit_cast<double>(nan->bits)));
}

TEST(Element, AFiniteValueBeyondAFloatingDTypeIsRefused) {
  ExpectRefused(int64_t{65505}, DType::kF16, "65505");
  ExpectRefused(-1e5, DType::kF16, "-100000");
  ExpectRefused(3.4e38, DType::kBF16, "3.4e+38");
  ExpectRefused(1e39, DType::kF32, "1e+39");
}

}  // namespace
}  // namespace cpshard
