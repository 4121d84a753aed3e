// One case: skip it, or ask the product, and only then compare.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/input.h"
#include "tests/conformance/target.h"

namespace cpshard::conformance {

struct Outcome {
  enum class Kind { kPassed, kFailed, kSkipped };

  Kind kind = Kind::kPassed;
  std::string text;    // the first difference, or why the case was skipped
  std::string answer;  // what the product said; empty when it was not asked
  std::vector<std::string> keys_not_compared;
};

// Never crashes on a case, whatever is in it: what cannot be read fails.
Outcome RunCase(const Case& item, const Target& target);

}  // namespace cpshard::conformance
