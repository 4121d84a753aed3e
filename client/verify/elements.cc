#include "client/verify/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/plan/element.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

constexpr int64_t kBlockBytes = 4096;

uint64_t BitsAt(const Tensor& tensor, int64_t index) {
  const int64_t item = ItemSize(tensor.spec.dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, tensor.buffer.data() + index * item, item);
  return bits;
}

// Whether the element, made of `number`, is that number and no neighbour of it.
bool IsExactly(const Element& element, DType dtype, const Number& number) {
  const ValueView back(dtype, {1}, reinterpret_cast<const std::byte*>(&element.bits));
  const int64_t* integer = std::get_if<int64_t>(&number);
  if (integer != nullptr && !IsFloating(dtype)) return back[0] == *integer;
  const double want = integer != nullptr ? static_cast<double>(*integer) : std::get<double>(number);
  const double got = back.Number(0);
  return got == want || (std::isnan(got) && std::isnan(want));
}

Number NumberAt(const ValueView& values, DType dtype, int64_t index) {
  if (IsFloating(dtype)) return values.Number(index);
  return values[index];
}

}  // namespace

void ForEachMismatch(const Tensor& a, const Tensor& b, const std::function<void(int64_t)>& visit) {
  const int64_t item = ItemSize(a.spec.dtype);
  const auto bytes = static_cast<int64_t>(a.buffer.size());
  for (int64_t begin = 0; begin < bytes; begin += kBlockBytes) {
    const int64_t end = std::min(begin + kBlockBytes, bytes);
    if (std::memcmp(a.buffer.data() + begin, b.buffer.data() + begin, end - begin) == 0) continue;
    for (int64_t at = begin; at < end; at += item) {
      if (std::memcmp(a.buffer.data() + at, b.buffer.data() + at, item) != 0) visit(at / item);
    }
  }
}

bool SameTensor(const Tensor& a, const Tensor& b) {
  return a.spec.dtype == b.spec.dtype && a.spec.dims == b.spec.dims && a.bytes() == b.bytes();
}

absl::StatusOr<std::optional<Tensor>> Restated(const Tensor& tensor, DType dtype,
                                               const std::vector<int64_t>& dims, BufferPool& pool) {
  const int64_t count = NumElements(tensor.spec);
  if (Product(dims) != count) return std::nullopt;
  const TensorSpec spec{tensor.spec.name, dtype, dims};
  if (tensor.spec.dtype == dtype) return Tensor{spec, tensor.buffer};
  const int64_t item = ItemSize(dtype);
  CPSHARD_ASSIGN_OR_RETURN(const Buffer buffer, pool.Allocate(count * item));
  const ValueView values = ViewValues(tensor);
  for (int64_t i = 0; i < count; ++i) {
    const Number number = NumberAt(values, tensor.spec.dtype, i);
    const absl::StatusOr<Element> element = ConvertFill(number, dtype, spec.name);
    if (!element.ok() || !IsExactly(*element, dtype, number)) return std::nullopt;
    std::memcpy(buffer.data() + i * item, &element->bits, item);
  }
  return Tensor{spec, buffer};
}

std::string ElementText(const Tensor& tensor, int64_t index) {
  const ValueView values = ViewValues(tensor);
  if (tensor.spec.dtype == DType::kBool) return values[index] != 0 ? "true" : "false";
  if (IsFloating(tensor.spec.dtype)) return absl::StrFormat("%.9g", values.Number(index));
  return absl::StrCat(values[index]);
}

ElementTexts TextsOf(const Tensor& expected, const Tensor& found, int64_t index) {
  ElementTexts texts{ElementText(expected, index), ElementText(found, index)};
  if (texts.expected != texts.found) return texts;
  const int digits = 2 * static_cast<int>(ItemSize(expected.spec.dtype));
  absl::StrAppendFormat(&texts.expected, " (%0*x)", digits, BitsAt(expected, index));
  absl::StrAppendFormat(&texts.found, " (%0*x)", digits, BitsAt(found, index));
  return texts;
}

std::optional<int64_t> IntegerAt(const Tensor& tensor, int64_t index) {
  if (IsFloating(tensor.spec.dtype)) return std::nullopt;
  return ViewValues(tensor)[index];
}

std::vector<int64_t> Unraveled(absl::Span<const int64_t> dims, int64_t element) {
  std::vector<int64_t> index(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    index[axis] = element % dims[axis];
    element /= dims[axis];
  }
  return index;
}

std::string DescribeSpec(const TensorSpec& spec) {
  return absl::StrCat(DTypeName(spec.dtype), DimsString(spec.dims));
}

}  // namespace cpshard::verify
