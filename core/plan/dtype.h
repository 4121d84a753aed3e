// Element types of tensor streams. Their names are the ones used on the wire, in the batch digest
// and in messages: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace cpshard {

enum class DType : uint8_t { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

inline constexpr std::array kAllDTypes = {DType::kBool, DType::kU8,  DType::kI8,  DType::kI16,
                                          DType::kI32,  DType::kI64, DType::kF16, DType::kBF16,
                                          DType::kF32,  DType::kF64};

// Bytes of one element: 1, 2, 4 or 8.
constexpr int64_t ItemSize(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

// Signed or unsigned integers; bool is neither floating nor an integer.
constexpr bool IsInteger(DType dtype) { return !IsFloating(dtype) && dtype != DType::kBool; }

// True where no negative value exists: bool and u8.
constexpr bool IsUnsigned(DType dtype) { return dtype == DType::kBool || dtype == DType::kU8; }

absl::string_view DTypeName(DType dtype);

// nullopt for a name that is not one of the ten.
std::optional<DType> ParseDType(absl::string_view name);

}  // namespace cpshard
