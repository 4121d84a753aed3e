// Values of integer streams as a plan reads them.
#include "core/plan/int_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
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
    const IntView view(dtype, {static_cast<int64_t>(values.size())}, bytes.data() + offset);
    EXPECT_EQ(view.ToVector(), expected) << DTypeName(dtype) << " at offset " << offset;
  }
}

template <typename T>
std::vector<T> Extremes() {
  return {std::numeric_limits<T>::min(), 0, 1, std::numeric_limits<T>::max()};
}

TEST(IntView, WidensEveryIntegerDTypeAtEveryAlignment) {
  ExpectReadAs(DType::kI8, Extremes<int8_t>(), {-128, 0, 1, 127});
  ExpectReadAs(DType::kU8, Extremes<uint8_t>(), {0, 0, 1, 255});
  ExpectReadAs(DType::kI16, Extremes<int16_t>(), {-32768, 0, 1, 32767});
  ExpectReadAs(DType::kI32, Extremes<int32_t>(), {-2147483648LL, 0, 1, 2147483647});
  ExpectReadAs(DType::kI64, Extremes<int64_t>(), {INT64_MIN, 0, 1, INT64_MAX});
}

TEST(IntView, ReadsBoolsAsTheirBytes) {
  ExpectReadAs(DType::kBool, std::vector<uint8_t>{0, 1, 1}, {0, 1, 1});
}

TEST(IntView, IsRowMajorAndKeepsItsDims) {
  const std::vector<int32_t> values = {1, 2, 3, 4, 5, 6};
  const IntView view(DType::kI32, {2, 3}, reinterpret_cast<const std::byte*>(values.data()));
  EXPECT_THAT(view.dims(), ElementsAre(2, 3));
  EXPECT_EQ(view.size(), 6);
  EXPECT_EQ(view[1 * 3 + 1], 5);
}

TEST(IntView, WithoutAxesHoldsOneValue) {
  const int64_t value = 7;
  const IntView view(DType::kI64, {}, reinterpret_cast<const std::byte*>(&value));
  EXPECT_EQ(view.size(), 1);
  EXPECT_EQ(view[0], 7);
}

TEST(IntView, MayBeEmpty) {
  EXPECT_EQ(IntView().size(), 0);
  EXPECT_THAT(IntView().ToVector(), IsEmpty());
  EXPECT_THAT(IntView(DType::kI64, {3, 0}, nullptr).ToVector(), IsEmpty());
}

}  // namespace
}  // namespace cpshard
