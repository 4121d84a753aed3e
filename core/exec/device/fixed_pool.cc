#include "core/exec/device/fixed_pool.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace cpshard {

class FixedPool::Core {
 public:
  Core(std::shared_ptr<void> block, std::byte* begin, int64_t size)
      : block_(std::move(block)), begin_(begin), size_(size / kAlignment * kAlignment) {
    if (size_ > 0) gaps_[0] = size_;
  }

  absl::StatusOr<std::byte*> Take(int64_t size) {
    absl::MutexLock lock(&mutex_);
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second >= size && (best == gaps_.end() || gap->second < best->second)) best = gap;
    }
    if (best == gaps_.end()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("fixed pool: ", size, " bytes asked for; ", bytes_out_, " of ", size_,
                       " are in use, the largest gap has ", LargestGap()));
    }
    const auto [at, length] = *best;
    gaps_.erase(best);
    if (length > size) gaps_[at + size] = length - size;
    bytes_out_ += size;
    ++buffers_out_;
    return begin_ + at;
  }

  void Return(std::byte* data, int64_t size) {
    absl::MutexLock lock(&mutex_);
    bytes_out_ -= size;
    --buffers_out_;
    auto gap = gaps_.emplace(data - begin_, size).first;
    if (auto next = std::next(gap); next != gaps_.end() && gap->first + size == next->first) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap == gaps_.begin()) return;
    if (auto before = std::prev(gap); before->first + before->second == gap->first) {
      before->second += gap->second;
      gaps_.erase(gap);
    }
  }

  Stats stats() const {
    absl::MutexLock lock(&mutex_);
    return {size_, bytes_out_, buffers_out_, LargestGap()};
  }

 private:
  int64_t LargestGap() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t largest = 0;
    for (const auto& [at, length] : gaps_) largest = std::max(largest, length);
    return largest;
  }

  const std::shared_ptr<void> block_;
  std::byte* const begin_;
  const int64_t size_;
  mutable absl::Mutex mutex_;
  std::map<int64_t, int64_t> gaps_ ABSL_GUARDED_BY(mutex_);  // begin to length; none touch
  int64_t bytes_out_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t buffers_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

FixedPool::FixedPool(std::shared_ptr<void> block, std::byte* begin, int64_t size)
    : core_(std::make_shared<Core>(std::move(block), begin, size)) {}

absl::StatusOr<Buffer> FixedPool::Allocate(int64_t size) {
  if (size == 0) return Buffer();
  if (size < 0 || size > INT64_MAX - kAlignment) {
    return absl::InvalidArgumentError(absl::StrCat("fixed pool: ", size, " bytes asked for"));
  }
  const int64_t taken = (size + kAlignment - 1) / kAlignment * kAlignment;
  absl::StatusOr<std::byte*> data = core_->Take(taken);
  if (!data.ok()) return data.status();
  std::shared_ptr<void> owner(
      *data, [core = core_, taken](void* at) { core->Return(static_cast<std::byte*>(at), taken); });
  return Buffer(std::move(owner), *data, size);
}

FixedPool::Stats FixedPool::stats() const { return core_->stats(); }

}  // namespace cpshard
