// What batches were, by their digests, long after they are gone: a batch that comes again is held
// to it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace cpshard {

// The kSize batches of a pass that came last. Not thread-safe.
class DigestRing {
 public:
  static constexpr size_t kSize = 4096;

  struct Entry {
    uint64_t digest = 0;
    int64_t epoch = 0;
    uint64_t put = 0;  // how many came before it
  };

  std::optional<Entry> Find(int64_t step, int64_t microbatch) const {
    const auto it = entries_.find({step, microbatch});
    if (it == entries_.end()) return std::nullopt;
    return it->second;
  }

  void Put(int64_t step, int64_t microbatch, Entry entry) {
    const Key key{step, microbatch};
    if (ring_.size() < kSize) {
      ring_.push_back(key);
    } else {
      // Unless it has come again since.
      const auto oldest = entries_.find(ring_[puts_ % kSize]);
      if (oldest != entries_.end() && oldest->second.put + kSize == puts_) entries_.erase(oldest);
      ring_[puts_ % kSize] = key;
    }
    entries_[key] = {entry.digest, entry.epoch, puts_++};
  }

  void Clear() {
    entries_.clear();
    ring_.clear();
    puts_ = 0;
  }

 private:
  using Key = std::pair<int64_t, int64_t>;
  std::map<Key, Entry> entries_;
  std::vector<Key> ring_;  // in the order of Put
  uint64_t puts_ = 0;
};

}  // namespace cpshard
