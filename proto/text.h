// Texts for people, as a status on the wire carries them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cpshard {

// The first `max_bytes` of `text`, cut between two characters, and then "..."; what is not UTF-8 in
// them becomes "?". A gRPC status travels as metadata, which is bounded, and half a character (a
// name that a text cut short, say) makes the whole message unreadable.
std::string CutText(absl::string_view text, size_t max_bytes = 2048);

// The text on one line, of characters that print: control characters become \n, \x1b and the like.
// Texts quote names, and these are anybody's.
std::string OneLineText(absl::string_view text);

}  // namespace cpshard
