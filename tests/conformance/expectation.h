// What a case says that cpshard must answer.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/conformance/answer.h"
#include "tests/conformance/input.h"

namespace cpshard::conformance {

struct Expectation {
  std::optional<absl::StatusCode> refusal;  // then `ranks` is empty
  std::vector<RankAnswer> ranks;            // by rank; of the layouts only fields 1 to 5
  bool lists_state = false;                 // a case without it says nothing about the state
};

// InvalidArgument, naming the field: `ranks` or `product` is missing or not as the format says.
absl::StatusOr<Expectation> Open(const SealedExpectation& sealed, const Answer& answer);

}  // namespace cpshard::conformance
