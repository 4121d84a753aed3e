// Values of the corpus (tensors, scalars, lists, records) as entries of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "tests/conformance/json.h"

namespace cpshard::conformance {

// {"dtype", "shape", "data"}. InvalidArgument: a field is missing, an unknown dtype, data that is
// not nested as the shape says, an element that the dtype does not hold.
absl::StatusOr<Tensor> DecodeTensor(absl::string_view name, const Json& json);

// A tensor of these integers; `dtype` is an integer one that holds them.
Tensor IntTensor(absl::string_view name, DType dtype, std::vector<int64_t> dims,
                 absl::Span<const int64_t> values);

// Whose value is taken where it differs.
struct Pick {
  std::optional<int64_t> rank;     // in its group
  std::optional<int64_t> replica;  // data-parallel
};

// Entries of one value, appended to `batch`:
//   tensor, {"value": x}    name
//   {"list": [...]}         name.0, name.1, ...
//   {"struct": ..., f: ...} name.f; a bare number, string or bool is a scalar there
//   {"per_rank": [...]}     the element of pick.rank; refused without one
//   {"per_replica": [...]}  the element of pick.replica; refused without one
// Null values and process groups (`<cp_group>`, scalars whose key ends in `_group`) make no entry.
// InvalidArgument, naming the value: another encoding.
absl::Status AppendValue(absl::string_view name, const Json& json, const Pick& pick, Batch& batch);

// The same for every member of an object. InvalidArgument also for a name that comes twice.
absl::StatusOr<Batch> DecodeValues(const Json& object, const Pick& pick);

// The first member whose value differs between ranks, so that no single batch holds it.
std::optional<std::string> FindPerRank(const Json& object);

}  // namespace cpshard::conformance
