// Findings as text and as JSON.
#pragma once

#include <string>

#include "client/verify/verify.h"

namespace cpshard::verify {

// A table of the streams, then what differs, the edges, and a verdict. Ends with a newline.
std::string ToText(const Findings& findings);

// The same facts; what a reader does not know may be added.
std::string ToJson(const Findings& findings);

}  // namespace cpshard::verify
