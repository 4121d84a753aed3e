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

// How launches get at memory.
enum class Access : uint8_t {
  kInPlace,  // they reach it
  kCopied,   // pinned: the copy engine brings it from where it lies
  kBounced,  // pageable: it is copied by way of pinned memory
};

// Memory as strips name it. From kPinnedMemory on every source and every destination of a task in
// pinned memory has a number of its own.
inline constexpr uint32_t kReachedMemory = 0, kPageableMemory = 1, kPinnedMemory = 2;

// A Piece of any size.
struct Strip {
  uint64_t dest = 0, source = 0;
  int64_t first = 0, size = 0;
  uint32_t rule = 0;
  uint32_t source_memory = 0, dest_memory = 0;  // see below
  friend bool operator==(const Strip&, const Strip&) = default;
};

// Whether the size of such strips and pieces counts elements, not bytes.
inline bool CountsElements(const Rule& rule) {
  return rule.kind != PieceKind::kCopy && rule.kind != PieceKind::kFill;
}

// Of a derivation with elements.
Rule DeriveRule(const DeriveTask& task);

// Bytes from one element of a diagonal to the next: where it is staged and they are further apart,
// each is a strip of its own, so that what lies between need not be staged.
inline constexpr int64_t kFarApart = 256;

// Bytes that what pieces write is a multiple of, where they meet: what the lanes of a warp write at
// a time, and a cache line. Bytes stay as aligned as they are.
inline constexpr int64_t kMeet = 128;

struct Strips {
  std::vector<Rule> rules;
  std::vector<std::vector<Strip>> launches;  // a later one may read or overwrite earlier ones'
  std::vector<Interval> pinned;              // where memory kPinnedMemory + i begins and ends

  Interval Writes(const Strip& strip) const;
  Interval Reads(const Strip& strip) const;  // what lies between is included; empty: nothing
};

// How launches get at the memory between the first byte and the last one that a task reads or
// writes; asked once for each source and each destination that has bytes.
using AccessTo = std::function<absl::StatusOr<Access>(const Interval&)>;

// Of moves that write the same bytes the later one's stay, the earlier ones' are cut away.
// InvalidArgument: such moves meet in the middle of an element.
absl::StatusOr<Strips> StripsOf(absl::Span<const Task> tasks, const AccessTo& access_to);

}  // namespace cpshard
