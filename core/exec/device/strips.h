// From tasks to strips: every move of every outer index with its addresses, in launches. What is
// in one launch may be done in any order, all at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/exec/device/piece.h"
#include "core/exec/task.h"

namespace cpshard {

// The addresses [begin, end).
struct Interval {
  uint64_t begin = 0, end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// A Piece of any size.
struct Strip {
  uint64_t dest = 0, source = 0;
  int64_t first = 0, size = 0;
  uint32_t rule = 0;
  bool stage_source = false, stage_dest = false;  // memory that the device does not reach
  friend bool operator==(const Strip&, const Strip&) = default;
};

// Whether the size of such strips and pieces counts elements, not bytes.
inline bool CountsElements(const Rule& rule) {
  return rule.kind != PieceKind::kCopy && rule.kind != PieceKind::kFill;
}

struct Strips {
  std::vector<Rule> rules;
  std::vector<std::vector<Strip>> launches;  // a later one may read or overwrite earlier ones'

  Interval Writes(const Strip& strip) const;
  Interval Reads(const Strip& strip) const;  // what lies between is included; empty: nothing
};

// Whether the device reaches the memory that begins there; asked once for each source and each
// destination of each task that has bytes there.
using Reaches = std::function<absl::StatusOr<bool>(const std::byte*)>;

// Of moves that write the same bytes the later one's stay, the earlier ones' are cut away.
// InvalidArgument: such moves meet in the middle of an element.
absl::StatusOr<Strips> StripsOf(absl::Span<const Task> tasks, const Reaches& reaches);

}  // namespace cpshard
