// Which launch a task belongs to: the first in which everything that it reads has been written, and
// nothing is overwritten that an earlier task still reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/types/span.h"

namespace cpshard {

struct Interval;

class LaunchOrder {
 public:
  // The launch of a task that reads and writes these addresses, and comes after those placed
  // before. Empty intervals count for nothing.
  size_t Place(const Interval& reads, absl::Span<const Interval> writes);

 private:
  // For every address the first launch that may touch it, by the begin of a stretch.
  class Stretches {
   public:
    size_t Most(const Interval& interval) const;
    void Raise(const Interval& interval, size_t least);

   private:
    std::map<uint64_t, size_t> from_ = {{0, 0}};
  };

  Stretches written_;  // who comes after a write
  Stretches read_;     // who may write after a read
};

}  // namespace cpshard
