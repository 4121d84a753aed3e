#include "core/plan/dtype.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace cpshard {
namespace {

struct Row {
  DType dtype;
  const char* name;
  int64_t bytes;
  bool floating, integer, is_unsigned;
};

constexpr Row kTable[] = {
    {DType::kBool, "bool", 1, false, false, true}, {DType::kU8, "u8", 1, false, true, true},
    {DType::kI8, "i8", 1, false, true, false},     {DType::kI16, "i16", 2, false, true, false},
    {DType::kI32, "i32", 4, false, true, false},   {DType::kI64, "i64", 8, false, true, false},
    {DType::kF16, "f16", 2, true, false, false},   {DType::kBF16, "bf16", 2, true, false, false},
    {DType::kF32, "f32", 4, true, false, false},   {DType::kF64, "f64", 8, true, false, false},
};

TEST(DType, EveryDTypeHasItsNameSizeAndKind) {
  ASSERT_EQ(std::size(kTable), kAllDTypes.size());
  for (size_t i = 0; i < kAllDTypes.size(); ++i) {
    const Row& row = kTable[i];
    SCOPED_TRACE(row.name);
    EXPECT_EQ(kAllDTypes[i], row.dtype);
    EXPECT_EQ(DTypeName(row.dtype), row.name);
    EXPECT_EQ(ItemSize(row.dtype), row.bytes);
    EXPECT_EQ(IsFloating(row.dtype), row.floating);
    EXPECT_EQ(IsInteger(row.dtype), row.integer);
    EXPECT_EQ(IsUnsigned(row.dtype), row.is_unsigned);
  }
}

TEST(DType, ParseReadsTheTenNames) {
  for (const Row& row : kTable) EXPECT_EQ(ParseDType(row.name), row.dtype) << row.name;
}

TEST(DType, ParseRefusesEveryOtherSpelling) {
  for (const char* name : {"", "I64", "int64", "i64 ", " i64", "i6", "f8", "u16", "float", "?"}) {
    EXPECT_EQ(ParseDType(name), std::nullopt) << "'" << name << "'";
  }
}

}  // namespace
}  // namespace cpshard
