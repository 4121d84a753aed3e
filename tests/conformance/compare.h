// The comparison: exact, and one difference is enough.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/answer.h"
#include "tests/conformance/expectation.h"

namespace cpshard::conformance {

// Drops what this run cannot have, and returns the names: gradients that nothing here can compute
// (all but kGradientOfSum); through a server that one too, and the state.
std::vector<std::string> DropUnavailable(bool on_wire, Expectation& expectation);

// The first difference: which rank and stream, at which index, got what, wanted what.
std::optional<std::string> FirstDifference(const Answer& answer, const Expectation& expectation);

}  // namespace cpshard::conformance
