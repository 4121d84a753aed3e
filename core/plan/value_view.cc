#include "core/plan/value_view.h"

#include <cstring>

#include "core/plan/half.h"

namespace cpshard {
namespace {

template <typename T>
T At(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T, typename Out>
void ReadAs(const std::byte* data, int64_t first, int64_t count, Out* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(At<T>(data, first + i));
}

}  // namespace

int64_t ValueView::operator[](int64_t index) const {
  switch (dtype_) {
    case DType::kI8:
      return At<int8_t>(data_, index);
    case DType::kI16:
      return At<int16_t>(data_, index);
    case DType::kI32:
      return At<int32_t>(data_, index);
    case DType::kI64:
      return At<int64_t>(data_, index);
    default:  // bool and u8; the precondition leaves no other
      return At<uint8_t>(data_, index);
  }
}

double ValueView::Number(int64_t index) const {
  switch (dtype_) {
    case DType::kF16:
      return F16BitsToFloat(At<uint16_t>(data_, index));
    case DType::kBF16:
      return Bf16BitsToFloat(At<uint16_t>(data_, index));
    case DType::kF32:
      return At<float>(data_, index);
    case DType::kF64:
      return At<double>(data_, index);
    default:
      return static_cast<double>((*this)[index]);
  }
}

void ValueView::Read(int64_t first, int64_t count, int64_t* out) const {
  switch (dtype_) {
    case DType::kI8:
      return ReadAs<int8_t>(data_, first, count, out);
    case DType::kI16:
      return ReadAs<int16_t>(data_, first, count, out);
    case DType::kI32:
      return ReadAs<int32_t>(data_, first, count, out);
    case DType::kI64:
      return ReadAs<int64_t>(data_, first, count, out);
    default:
      return ReadAs<uint8_t>(data_, first, count, out);
  }
}

void ValueView::ReadNumbers(int64_t first, int64_t count, double* out) const {
  switch (dtype_) {
    case DType::kBool:
    case DType::kU8:
      return ReadAs<uint8_t>(data_, first, count, out);
    case DType::kI64:
      return ReadAs<int64_t>(data_, first, count, out);
    case DType::kF32:
      return ReadAs<float>(data_, first, count, out);
    case DType::kF64:
      return ReadAs<double>(data_, first, count, out);
    default:  // rare as masks and labels
      for (int64_t i = 0; i < count; ++i) out[i] = Number(first + i);
  }
}

std::vector<int64_t> ValueView::ToVector() const {
  std::vector<int64_t> values(size_);
  Read(0, size_, values.data());
  return values;
}

}  // namespace cpshard
