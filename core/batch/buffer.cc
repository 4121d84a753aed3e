#include "core/batch/buffer.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace cpshard {
namespace {

constexpr char kNeverFits[] = "cpshard/never-fits";  // payload of a status
constexpr size_t kHugePage = size_t{2} << 20;

// Four size classes per power of two: at most 25 % of a block is unused.
size_t ClassOf(size_t size) {
  if (size <= 4096) return 4096;
  if (size > SIZE_MAX / 2) return SIZE_MAX;  // its class would not fit a number
  const size_t step = std::bit_floor(size - 1) / 4;
  return (size + step - 1) / step * step;
}

class HeapBlocks final : public BlockSource {
 public:
  std::byte* Take(size_t size) override {
    const size_t alignment = size >= kHugePage ? kHugePage : kBufferAlignment;
    void* block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    // Advice only: without huge pages the block works all the same.
    if (block != nullptr && size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);
    return static_cast<std::byte*>(block);
  }
  void Give(std::byte* block, size_t) override { std::free(block); }
};

BufferPoolOptions WithBlocks(BufferPoolOptions options) {
  if (options.blocks == nullptr) {
    options.blocks = SystemBlocks();
  } else {
    options.max_idle_bytes = 0;
  }
  return options;
}

}  // namespace

std::shared_ptr<BlockSource> SystemBlocks() {
  static const auto* const blocks = new std::shared_ptr<BlockSource>(new HeapBlocks);
  return *blocks;
}

class BufferPool::Core {
 public:
  explicit Core(BufferPoolOptions options) : options_(WithBlocks(std::move(options))) {}

  ~Core() {
    for (auto& [size, blocks] : idle_) {
      for (std::byte* block : blocks) options_.blocks->Give(block, size);
    }
  }

  absl::StatusOr<std::byte*> Take(size_t block_size) {
    absl::MutexLock lock(&mutex_);
    if (block_size > options_.max_bytes || stats_.bytes_out > options_.max_bytes - block_size) {
      absl::Status status = absl::ResourceExhaustedError(
          absl::StrCat("buffer pool: ", block_size, " bytes more than the ", stats_.bytes_out,
                       " in use would pass the limit of ", options_.max_bytes));
      return block_size > options_.max_bytes ? ThatNeverFits(std::move(status)) : status;
    }
    std::byte* block = nullptr;
    if (auto it = idle_.find(block_size); it != idle_.end() && !it->second.empty()) {
      block = it->second.back();
      it->second.pop_back();
      stats_.bytes_idle -= block_size;
      ASAN_UNPOISON_MEMORY_REGION(block, block_size);
    } else {
      TrimIdle(options_.max_bytes - block_size - stats_.bytes_out);
      block = options_.blocks->Take(block_size);
    }
    if (block == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("buffer pool: the system has no block of ", block_size, " bytes"));
    }
    ++stats_.buffers_out;
    stats_.bytes_out += block_size;
    return block;
  }

  void Return(std::byte* block, size_t block_size) {
    absl::MutexLock lock(&mutex_);
    --stats_.buffers_out;
    stats_.bytes_out -= block_size;
    if (!closed_ && stats_.bytes_idle + block_size <= options_.max_idle_bytes) {
      // Nothing without the sanitizer; with it who still reads the block is found.
      ASAN_POISON_MEMORY_REGION(block, block_size);
      idle_[block_size].push_back(block);
      stats_.bytes_idle += block_size;
    } else {
      options_.blocks->Give(block, block_size);
    }
  }

  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    TrimIdle(0);
  }

  size_t max_bytes() const { return options_.max_bytes; }

  BufferPoolStats stats() const {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  // Frees idle blocks, large ones first, until at most `keep` bytes are idle.
  void TrimIdle(size_t keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto it = idle_.rbegin(); it != idle_.rend() && stats_.bytes_idle > keep; ++it) {
      while (!it->second.empty() && stats_.bytes_idle > keep) {
        options_.blocks->Give(it->second.back(), it->first);
        it->second.pop_back();
        stats_.bytes_idle -= it->first;
      }
    }
  }

  const BufferPoolOptions options_;
  mutable absl::Mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> idle_ ABSL_GUARDED_BY(mutex_);
  BufferPoolStats stats_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

bool NeverFits(const absl::Status& status) { return status.GetPayload(kNeverFits).has_value(); }

absl::Status ThatNeverFits(absl::Status status) {
  status.SetPayload(kNeverFits, absl::Cord());
  return status;
}

BufferPool::BufferPool(BufferPoolOptions options)
    : core_(std::make_shared<Core>(std::move(options))) {}

BufferPool::~BufferPool() { core_->Close(); }

absl::StatusOr<Buffer> BufferPool::Allocate(size_t size) {
  if (size == 0) return Buffer();
  const size_t block_size = ClassOf(size);
  absl::StatusOr<std::byte*> block = core_->Take(block_size);
  if (!block.ok()) return block.status();
  // The deleter holds the core, not the pool: a buffer may outlive the pool.
  std::shared_ptr<void> owner(*block, [core = core_, block_size](void* data) {
    core->Return(static_cast<std::byte*>(data), block_size);
  });
  return Buffer(std::move(owner), *block, size);
}

size_t BufferPool::max_bytes() const { return core_->max_bytes(); }

BufferPoolStats BufferPool::stats() const { return core_->stats(); }

}  // namespace cpshard
