// How much memory the batches of each connection may need, so that no single one has all of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/synchronization/mutex.h"

namespace cpshard {

// Thread-safe. Counts what was asked for, allocated or not.
class MemoryShare {
 public:
  explicit MemoryShare(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // For one batch, which holds `own` already. False: other batches of the connection hold some, and
  // with `bytes` more it would pass max_bytes. One batch alone gets what it needs, however much.
  bool Reserve(const std::string& peer, int64_t bytes, int64_t own = 0);
  void Release(const std::string& peer, int64_t bytes);

  int64_t max_bytes() const { return max_bytes_; }
  int64_t held(const std::string& peer) const;

 private:
  const int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  std::map<std::string, int64_t> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cpshard
