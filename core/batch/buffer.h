// Pooled memory. A Buffer is a shared handle on a block: copies of the handle share the bytes, the
// last one to go gives the block back to its pool.
//
// Why a pool: a copy into fresh pages runs at a fraction of the speed of one into resident memory
// (page faults), so blocks are kept and reused; large ones are page-aligned and ask for huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cpshard {

// Of every pooled buffer, and of every tensor inside one or inside a body on the wire, in bytes.
inline constexpr size_t kBufferAlignment = 64;

constexpr int64_t AlignUp(int64_t bytes) {
  constexpr auto kStep = static_cast<int64_t>(kBufferAlignment);
  return (bytes + kStep - 1) / kStep * kStep;
}

class Buffer {
 public:
  Buffer() = default;  // empty: size 0, data nullptr

  // A window on memory that `owner` keeps alive (a received slice, a reply's body).
  Buffer(std::shared_ptr<void> owner, std::byte* data, size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // Bytes [offset, offset + size) of this buffer; shares the block.
  // Precondition: the range lies inside.
  Buffer Slice(size_t offset, size_t size) const { return Buffer(owner_, data_ + offset, size); }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Where a pool's blocks come from. Thread-safe.
class BlockSource {
 public:
  virtual ~BlockSource() = default;

  // `size` bytes at a multiple of kBufferAlignment, or nullptr where there are none.
  virtual std::byte* Take(size_t size) = 0;
  virtual void Give(std::byte* block, size_t size) = 0;  // of Take(size)
};

// Of the heap; large ones are page-aligned and ask for huge pages.
std::shared_ptr<BlockSource> SystemBlocks();

struct BufferPoolOptions {
  // Of blocks, which are up to 25 % larger than what was asked for, and at least 4 KB.
  size_t max_bytes = size_t{8} << 30;       // in use and kept together
  size_t max_idle_bytes = size_t{1} << 30;  // kept for reuse

  // Null: SystemBlocks(). Blocks of another source go back to it at once: what is kept for reuse is
  // its business, and others may share it.
  std::shared_ptr<BlockSource> blocks;
};

struct BufferPoolStats {
  size_t buffers_out = 0;  // handed out and not yet given back
  size_t bytes_out = 0;
  size_t bytes_idle = 0;
};

// Whether a ResourceExhausted stays when all else is given back: of Allocate, where the size alone
// is over max_bytes. Kept when the status is passed on.
bool NeverFits(const absl::Status& status);

// `status`, marked so.
absl::Status ThatNeverFits(absl::Status status);

// Thread-safe. Buffers may outlive the pool object; their blocks are then freed when they go.
class BufferPool {
 public:
  explicit BufferPool(BufferPoolOptions options = {});
  ~BufferPool();

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A block of `size` bytes, 64-byte aligned, contents undefined. Size 0 gives an empty buffer.
  // ResourceExhausted, naming the numbers: more than max_bytes would be in use, or the system has
  // none; see NeverFits.
  absl::StatusOr<Buffer> Allocate(size_t size);

  size_t max_bytes() const;

  BufferPoolStats stats() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace cpshard
