// Texts for people, as a status on the wire carries them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cpshard {

// The first 2 KiB of `text`, cut between two characters, and then "..."; what is not UTF-8 in them
// becomes "?". A gRPC status travels as metadata, which is bounded, and half a character (a name
// that a text cut short, say) makes the whole message unreadable.
std::string CutText(absl::string_view text);

}  // namespace cpshard
