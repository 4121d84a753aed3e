// A layout as the input of a verb: `args.layout` and `args.map` of a case.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/dtype.h"
#include "core/plan/shard_layout.h"
#include "tests/conformance/json.h"

namespace cpshard::conformance {

struct LayoutArg {
  // Of the fields 1 to 5 all but the indices, which differ between ranks.
  ShardLayout fields;
  std::vector<std::vector<int64_t>> indices;  // one list per rank; empty = none were captured
  DType indices_dtype = DType::kI64;
  std::optional<std::string> map;  // closed form: identity, contiguous, round_robin

  bool has_indices() const { return !indices.empty(); }
};

// `args`: of a case; without `layout` and `map` all is absent. InvalidArgument, naming the field:
// an unknown one, or one of another type.
absl::StatusOr<LayoutArg> ReadLayoutArg(const Json& args);

}  // namespace cpshard::conformance
