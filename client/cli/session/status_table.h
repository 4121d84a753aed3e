// What `cpshard status` shows: who is there, how far everybody is, who waits for whom.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/session_views.h"

namespace cpshard {

// Lines of at most `columns` (at least 20): tables are cut off at the right, sentences are broken.
// Of many readers or loaders those that are furthest behind are shown. Names give the terminal no
// commands.
//
//   lag of a reader   steps it has consumed less than the reader that is furthest
//   lag of a loader   steps of its own that it is behind the loader that is furthest
//   stall             what its trainer has waited, of its time since the process opened
std::string StatusTable(const std::vector<GroupView>& groups, int64_t columns);

// The first lines of a text alone, with a last one that says how many are left out.
std::string FirstLines(const std::string& text, int64_t lines);

}  // namespace cpshard
