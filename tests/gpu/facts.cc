// Alone, since its header changes with every commit.
#include "server/version.h"
#include "tests/gpu/findings.h"

namespace cpshard {

std::string BuildOfThis() {
  const std::string facts = kBuildFacts;
  return std::string("cpshard ") + kVersion + ", " + facts.substr(0, facts.find('\n'));
}

}  // namespace cpshard
