// Values of streams as a plan reads them.
#include "core/plan/value_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Reads `values` from every alignment that they could lie at.
template <typename T>
void ExpectReadAs(DType dtype, const std::vector<T>& values, const std::vector<int64_t>& expected) {
  for (size_t offset = 0; offset < sizeof(int64_t); ++offset) {
    std::vector<std::byte> bytes(offset + values.size() * sizeof(T));
    std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(T));
    const ValueView view(dtype, {static_cast<int64_t>(values.size())}, bytes.data() + offset);
    EXPECT_EQ(view.ToVector(), expected) << DTypeName(dtype) << " at offset " << offset;
  }
}

template <typename T>
std::vector<T> Extremes() {
  return {std::numeric_limits<T>::min(), 0, 1, std::numeric_limits<T>::max()};
}

TEST(ValueView, WidensEveryIntegerDTypeAtEveryAlignment) {
  ExpectReadAs(DType::kI8, Extremes<int8_t>(), {-128, 0, 1, 127});
  ExpectReadAs(DType::kU8, Extremes<uint8_t>(), {0, 0, 1, 255});
  ExpectReadAs(DType::kI16, Extremes<int16_t>(), {-32768, 0, 1, 32767});
  ExpectReadAs(DType::kI32, Extremes<int32_t>(), {-2147483648LL, 0, 1, 2147483647});
  ExpectReadAs(DType::kI64, Extremes<int64_t>(), {INT64_MIN, 0, 1, INT64_MAX});
}

TEST(ValueView, ReadsBoolsAsTheirBytes) {
  ExpectReadAs(DType::kBool, std::vector<uint8_t>{0, 1, 1}, {0, 1, 1});
}

TEST(ValueView, ReadsNumbersOfEveryFloatingDTypeAtEveryAlignment) {
  const auto expect = [](DType dtype, auto bits, double number) {
    for (size_t offset = 0; offset < sizeof(int64_t); ++offset) {
      std::vector<std::byte> bytes(offset + 2 * sizeof(bits));
      std::memcpy(bytes.data() + offset + sizeof(bits), &bits, sizeof(bits));
      const ValueView view(dtype, {2}, bytes.data() + offset);
      EXPECT_EQ(view.Number(0), 0) << DTypeName(dtype) << " at offset " << offset;
      EXPECT_EQ(view.Number(1), number) << DTypeName(dtype) << " at offset " << offset;
    }
  };
  expect(DType::kF64, 0.1, 0.1);
  expect(DType::kF64, -std::numeric_limits<double>::infinity(),
         -std::numeric_limits<double>::infinity());
  expect(DType::kF32, -1.5f, -1.5);
  expect(DType::kF16, uint16_t{0xc000}, -2.0);
  expect(DType::kF16, uint16_t{0x0001}, 0x1p-24);
  expect(DType::kBF16, uint16_t{0x3fc0}, 1.5);
}

TEST(ValueView, ReadsIntegersAndBoolsAsNumbersToo) {
  const std::vector<int8_t> ints = {-128, 1};
  const ValueView view(DType::kI8, {2}, reinterpret_cast<const std::byte*>(ints.data()));
  EXPECT_EQ(view.Number(0), -128);
  EXPECT_EQ(view.Number(1), 1);
  const uint8_t yes = 1;
  EXPECT_EQ(ValueView(DType::kBool, {}, reinterpret_cast<const std::byte*>(&yes)).Number(0), 1);
}

TEST(ValueView, ReadsARangeAsItsElementsOneByOne) {
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI8, DType::kI16, DType::kI32,
                            DType::kI64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    SCOPED_TRACE(DTypeName(dtype));
    std::vector<std::byte> bytes;
    for (int i = 0; i < 5 * 8; ++i) bytes.push_back(std::byte(i * 37 % 100));  // no NaN
    const ValueView view(dtype, {5}, bytes.data());
    std::vector<double> numbers(3);
    view.ReadNumbers(1, 3, numbers.data());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers[i], view.Number(1 + i));
    if (IsFloating(dtype)) continue;
    std::vector<int64_t> values(3);
    view.Read(1, 3, values.data());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(values[i], view[1 + i]);
  }
}

// A mask that says neither yes nor no is told by its value (contract 4.18 step 6).
TEST(ValueView, ANaNIsNoNumberThatEqualsAnother) {
  for (const auto& [dtype, bits] :
       std::vector<std::pair<DType, uint64_t>>{{DType::kF16, 0x7e00},
                                               {DType::kBF16, 0x7fc0},
                                               {DType::kF32, 0x7fc00000},
                                               {DType::kF64, 0x7ff8000000000000}}) {
    const ValueView view(dtype, {1}, reinterpret_cast<const std::byte*>(&bits));
    EXPECT_TRUE(std::isnan(view.Number(0))) << DTypeName(dtype);
  }
}

TEST(ValueView, IsRowMajorAndKeepsItsDims) {
  const std::vector<int32_t> values = {1, 2, 3, 4, 5, 6};
  const ValueView view(DType::kI32, {2, 3}, reinterpret_cast<const std::byte*>(values.data()));
  EXPECT_THAT(view.dims(), ElementsAre(2, 3));
  EXPECT_EQ(view.size(), 6);
  EXPECT_EQ(view[1 * 3 + 1], 5);
}

TEST(ValueView, WithoutAxesHoldsOneValue) {
  const int64_t value = 7;
  const ValueView view(DType::kI64, {}, reinterpret_cast<const std::byte*>(&value));
  EXPECT_EQ(view.size(), 1);
  EXPECT_EQ(view[0], 7);
}

TEST(ValueView, MayBeEmpty) {
  EXPECT_EQ(ValueView().size(), 0);
  EXPECT_THAT(ValueView().ToVector(), IsEmpty());
  EXPECT_THAT(ValueView(DType::kI64, {3, 0}, nullptr).ToVector(), IsEmpty());
}

}  // namespace
}  // namespace cpshard
