// Blocks of a buffer pool in pinned memory, which a device reads and writes in place.
#pragma once

#include <cstdint>
#include <memory>

#include "core/batch/buffer.h"
#include "core/exec/device/fixed_pool.h"

namespace cpshard {

// Thread-safe. A block that `pinned` has no gap for is ordinary memory: executors copy what lies
// there, more slowly and to the same bytes. So what a pool may hand out does not depend on how its
// blocks lie, and its limit holds.
//
// Ordinary memory is kept for reuse, as a pool keeps it, up to 1 GB, and no more of it than was out
// at one time together with what is out.
class PinnedBlocks final : public BlockSource {
 public:
  explicit PinnedBlocks(FixedPool pinned);
  ~PinnedBlocks() override;

  std::byte* Take(size_t size) override;
  void Give(std::byte* block, size_t size) override;

  struct Stats {
    int64_t pinned_bytes = 0;  // of the pool
    int64_t pinned_bytes_out = 0;
    int64_t unpinned_bytes_out = 0;  // of blocks that found no gap, now ...
    int64_t unpinned_blocks = 0;     // ... and how many there were since the start
    int64_t unpinned_bytes_idle = 0;
  };
  Stats stats() const;

 private:
  class Core;
  const std::unique_ptr<Core> core_;
};

}  // namespace cpshard
