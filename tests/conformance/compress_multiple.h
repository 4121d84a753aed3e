// Backend `dsv4_multiple`: the pad multiple that follows from a model's compression ratios
// (contract 3.3), called as a library function.
#pragma once

#include "absl/status/statusor.h"
#include "tests/conformance/backends.h"

namespace cpshard::conformance {

// args: compress_ratios, a list of lists of ratios; null stands for none. Answers one scalar for
// each, called as Python prints the list. InvalidArgument: another type.
absl::StatusOr<LibraryCall> ReadCompressMultiple(const Input& input, Args& args);

}  // namespace cpshard::conformance
