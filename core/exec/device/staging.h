// What of memory that a device does not reach must be brought to it and back: the bytes that are
// read, the bytes that are written, packed one behind the other. No others but those between the
// elements of a diagonal that are close to each other (kFarApart).
#pragma once

#include <cstdint>
#include <vector>

#include "core/exec/device/strips.h"

namespace cpshard {

struct Staging {
  // Memory on end that has a copy on the device, `offset` bytes into the staged block. The copy
  // lies as the memory does modulo 64, so that the same accesses are aligned.
  struct Region {
    Interval memory;
    int64_t offset = 0;
    bool pinned = false;  // all of it, in one allocation
    friend bool operator==(const Region&, const Region&) = default;
  };
  std::vector<Region> regions;  // ascending; those to be brought in and the others apart
  std::vector<Region> in;       // copied to the device before the first launch
  std::vector<Region> out;      // copied back after the last: exactly what is written
  int64_t bytes = 0;            // of the staged block

  // Where the copy of `address` lies in the staged block. Precondition: it has one.
  int64_t OffsetOf(uint64_t address) const;
};

// Regions end where another allocation begins, as far as strips tell: memory of two kinds that lies
// edge to edge is two regions, and so is pinned memory of two tasks unless these have bytes in
// common. What a launch wrote before is not brought in for a later one that reads it whole.
Staging StagingOf(const Strips& strips);

// The same strips on the copies; `block` is where the staged block lies, a multiple of 64.
void Restage(Strips& strips, const Staging& staging, uint64_t block);

}  // namespace cpshard
