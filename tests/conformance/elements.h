// Single elements of tensors: from JSON numbers to bits, and back to text. Written for the tests
// alone, without the product's conversions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/dtype.h"
#include "tests/conformance/json.h"

namespace cpshard::conformance {

// Appends the bytes of one element, little endian. A float is rounded to nearest even.
// InvalidArgument, naming the value: another type than the dtype's, out of an integer's range.
absl::Status AppendElement(const Json& json, DType dtype, std::vector<std::byte>& bytes);

// Bit equality; a NaN equals every NaN.
bool SameElement(const std::byte* a, const std::byte* b, DType dtype);

std::string ElementText(const std::byte* element, DType dtype);

}  // namespace cpshard::conformance
