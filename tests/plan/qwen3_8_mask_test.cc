// Masks of qwen3_8 (contract 4.18 step 3) in rows long enough to be read in several pieces: where
// padding begins, and what is wrong with a mask, is told to the column.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

constexpr int64_t kColumns = 700;

// What the plan says of a padding_mask [2, 700] whose row 1 is `row`; row 0 is all tokens.
absl::Status PlanOfMask(DType dtype, const std::vector<double>& row) {
  std::vector<double> numbers(kColumns, 0);
  numbers.insert(numbers.end(), row.begin(), row.end());
  std::vector<float> floats(numbers.begin(), numbers.end());
  std::vector<int64_t> integers(numbers.begin(), numbers.end());
  std::vector<uint8_t> bytes(numbers.begin(), numbers.end());
  const void* data = dtype == DType::kF32   ? static_cast<const void*>(floats.data())
                     : dtype == DType::kI64 ? static_cast<const void*>(integers.data())
                                            : bytes.data();
  const std::vector<int64_t> dims = {2, kColumns};
  const BatchSpec spec = TokenBatch(2, kColumns, {{"padding_mask", dtype, dims}});
  const PlanValues values = {
      {"padding_mask", ValueView(dtype, dims, static_cast<const std::byte*>(data))}};
  return Qwen38({}, {.padding_token_id = 0}).Plan(spec, values).status();
}

std::vector<double> PaddedFrom(int64_t column) {
  std::vector<double> row(kColumns, 0);
  std::fill(row.begin() + column, row.end(), 1);
  return row;
}

const int64_t kPlaces[] = {0, 1, 255, 256, 257, 511, 512, 513, 699, 700};

TEST(Qwen38Masks, PaddingMayBeginInAnyColumn) {
  for (DType dtype : {DType::kBool, DType::kI64, DType::kF32}) {
    for (int64_t column : kPlaces) {
      const absl::Status status = PlanOfMask(dtype, PaddedFrom(column));
      EXPECT_TRUE(status.ok()) << column << ": " << status;
    }
  }
}

TEST(Qwen38Masks, ATokenBehindPaddingIsNamedWhereverItStands) {
  for (int64_t padding : {0, 200, 256, 300, 511}) {
    for (int64_t token : {512, 513, 600, 699}) {
      std::vector<double> row(kColumns, 1);
      std::fill(row.begin(), row.begin() + padding, 0);
      row[token] = 0;
      const absl::Status status = PlanOfMask(DType::kBool, row);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
      EXPECT_THAT(std::string(status.message()),
                  testing::AllOf(testing::HasSubstr("row 1"),
                                 testing::HasSubstr("column " + std::to_string(padding) + " "),
                                 testing::HasSubstr("at " + std::to_string(token))));
    }
  }
}

TEST(Qwen38Masks, WhatIsNeitherZeroNorOneIsNamedEvenBehindATokenBehindPadding) {
  for (int64_t column : {0, 255, 256, 600, 699}) {
    std::vector<double> row = PaddedFrom(100);
    row[580] = 0;  // a token behind padding: refused too, but this comes first
    row[column] = 2;
    const absl::Status status = PlanOfMask(DType::kI64, row);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("row 1 has 2"),
                               testing::HasSubstr("in column " + std::to_string(column) + ";")));
  }
}

}  // namespace
}  // namespace cpshard
