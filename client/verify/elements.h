// Elements of two tensors, side by side. They are compared by their bytes: a not-a-number equals
// itself, 0.0 does not equal -0.0.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"

namespace cpshard::verify {

// Calls `visit` with the index of every element that differs, ascending.
// Precondition: the tensors have the same dtype and number of elements.
void ForEachMismatch(const Tensor& a, const Tensor& b, const std::function<void(int64_t)>& visit);

// The same dtype, shape and bytes.
bool SameTensor(const Tensor& a, const Tensor& b);

// The same numbers in the same order, as `dtype` in the shape `dims`; nullopt: another number of
// elements, or one that the dtype does not hold exactly. ResourceExhausted: the pool.
absl::StatusOr<std::optional<Tensor>> Restated(const Tensor& tensor, DType dtype,
                                               const std::vector<int64_t>& dims, BufferPool& pool);

// An element as text: "17", "true", "0.5".
std::string ElementText(const Tensor& tensor, int64_t index);

// Of two elements that differ: where they read alike, the bits are added, "nan (7fc00001)".
struct ElementTexts {
  std::string expected, found;
};
ElementTexts TextsOf(const Tensor& expected, const Tensor& found, int64_t index);

// nullopt: a floating dtype.
std::optional<int64_t> IntegerAt(const Tensor& tensor, int64_t index);

// The indices of element `element` of a tensor of these dims.
std::vector<int64_t> Unraveled(absl::Span<const int64_t> dims, int64_t element);

// "i64[2, 8]"
std::string DescribeSpec(const TensorSpec& spec);

}  // namespace cpshard::verify
