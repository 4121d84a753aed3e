#include "core/exec/device/pinned_blocks.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cpshard {

namespace {

constexpr int64_t kMostIdle = int64_t{1} << 30;

// Ordinary blocks that came back, by their size. Not thread-safe.
class IdleBlocks {
 public:
  IdleBlocks() : system_(SystemBlocks()) {}
  ~IdleBlocks() { Trim(0); }

  int64_t bytes() const { return bytes_; }

  std::byte* Take(size_t size) {
    const auto it = blocks_.find(size);
    if (it == blocks_.end()) return nullptr;
    std::byte* block = it->second.back();
    Remove(it);
    return block;
  }

  void Add(std::byte* block, size_t size) {
    // Nothing without the sanitizer; with it who still reads the block is found.
    ASAN_POISON_MEMORY_REGION(block, size);
    blocks_[size].push_back(block);
    bytes_ += static_cast<int64_t>(size);
  }

  // Frees blocks, large ones first, until at most `keep` bytes are left.
  void Trim(int64_t keep) {
    while (bytes_ > std::max<int64_t>(keep, 0)) {
      const auto largest = std::prev(blocks_.end());
      const size_t size = largest->first;
      std::byte* block = largest->second.back();
      Remove(largest);
      system_->Give(block, size);
    }
  }

 private:
  using Blocks = std::map<size_t, std::vector<std::byte*>>;

  void Remove(Blocks::iterator it) {
    ASAN_UNPOISON_MEMORY_REGION(it->second.back(), it->first);
    bytes_ -= static_cast<int64_t>(it->first);
    it->second.pop_back();
    if (it->second.empty()) blocks_.erase(it);
  }

  const std::shared_ptr<BlockSource> system_;
  Blocks blocks_;  // none is empty
  int64_t bytes_ = 0;
};

}  // namespace

class PinnedBlocks::Core {
 public:
  explicit Core(FixedPool pinned) : pinned_(std::move(pinned)) {}

  std::byte* Take(size_t size) {
    if (absl::StatusOr<Buffer> buffer = pinned_.Allocate(static_cast<int64_t>(size)); buffer.ok()) {
      std::byte* block = buffer->data();
      absl::MutexLock lock(&mutex_);
      out_.emplace(block, *std::move(buffer));
      return block;
    }
    absl::MutexLock lock(&mutex_);
    std::byte* block = idle_.Take(size);
    const int64_t out = unpinned_bytes_out_ + static_cast<int64_t>(size);
    if (block == nullptr) {
      idle_.Trim(most_out_ - out);
      block = SystemBlocks()->Take(size);
    }
    if (block == nullptr) return nullptr;
    unpinned_bytes_out_ = out;
    most_out_ = std::max(most_out_, out);
    ++unpinned_blocks_;
    return block;
  }

  void Give(std::byte* block, size_t size) {
    Buffer buffer;  // goes outside of the lock
    absl::MutexLock lock(&mutex_);
    if (const auto it = out_.find(block); it != out_.end()) {
      buffer = std::move(it->second);
      out_.erase(it);
      return;
    }
    unpinned_bytes_out_ -= static_cast<int64_t>(size);
    idle_.Add(block, size);
    idle_.Trim(kMostIdle);
  }

  Stats stats() const {
    const FixedPool::Stats pinned = pinned_.stats();
    absl::MutexLock lock(&mutex_);
    return {pinned.bytes, pinned.bytes_out, unpinned_bytes_out_, unpinned_blocks_, idle_.bytes()};
  }

 private:
  FixedPool pinned_;
  mutable absl::Mutex mutex_;
  std::unordered_map<std::byte*, Buffer> out_ ABSL_GUARDED_BY(mutex_);
  IdleBlocks idle_ ABSL_GUARDED_BY(mutex_);
  int64_t unpinned_bytes_out_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t unpinned_blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t most_out_ ABSL_GUARDED_BY(mutex_) = 0;  // of unpinned_bytes_out_, so far
};

PinnedBlocks::PinnedBlocks(FixedPool pinned) : core_(std::make_unique<Core>(std::move(pinned))) {}
PinnedBlocks::~PinnedBlocks() = default;

std::byte* PinnedBlocks::Take(size_t size) { return core_->Take(size); }
void PinnedBlocks::Give(std::byte* block, size_t size) { core_->Give(block, size); }
PinnedBlocks::Stats PinnedBlocks::stats() const { return core_->stats(); }

}  // namespace cpshard
