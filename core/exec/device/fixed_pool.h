// A pool over one block of memory of a size that never changes: device memory, or pinned host
// memory, which are expensive to get and to give back. The pool itself never touches the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/batch/buffer.h"

namespace cpshard {

// Thread-safe; copies share the block. Buffers may outlive the pool; the block goes when all are
// gone. Takes the smallest gap that is large enough.
class FixedPool {
 public:
  static constexpr int64_t kAlignment = 256;  // of every buffer; sizes are rounded up to it

  // `block` keeps `size` bytes from `begin` on alive; begin is a multiple of kAlignment.
  FixedPool(std::shared_ptr<void> block, std::byte* begin, int64_t size);

  // Contents undefined. Size 0 gives an empty buffer.
  // InvalidArgument: size < 0. ResourceExhausted, naming size, what is free and the largest gap.
  absl::StatusOr<Buffer> Allocate(int64_t size);

  struct Stats {
    int64_t bytes = 0;  // of the block
    int64_t bytes_out = 0;
    int64_t buffers_out = 0;
    int64_t largest_gap = 0;
  };
  Stats stats() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace cpshard
