// Ranks and places in words.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "core/plan/explain.h"

namespace cpshard::verify {

// "rank 3", "ranks 0-3, 7"; of many stretches the first ones. Precondition: ascending, not empty.
std::string RanksText(absl::Span<const int64_t> ranks);

// "token 17 of row 0", "padding", "padding of document 2 of row 0".
std::string TokenText(const Explanation& place);

// "rank 1 slot 3"; "every rank"; "no rank".
std::string HolderText(const TokenPlace& place);

// "token 17 of row 0, document 1 position 3, padded column 17".
std::string PlaceText(const Explanation& place);

}  // namespace cpshard::verify
