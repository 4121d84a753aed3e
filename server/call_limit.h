// How many calls a connection has open. gRPC holds a peer to MAX_CONCURRENT_STREAMS only once that
// peer has acknowledged it; one that never does could open calls until memory is gone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/synchronization/mutex.h"

namespace cpshard {

// Thread-safe.
class CallLimit {
 public:
  explicit CallLimit(int64_t max_calls) : max_calls_(max_calls) {}

  // A call of the connection begins. False: it is the first above max_calls.
  bool Enter(const std::string& peer) {
    absl::MutexLock lock(&mutex_);
    return ++calls_[peer] != max_calls_ + 1;
  }

  // A call that entered has ended.
  void Leave(const std::string& peer) {
    absl::MutexLock lock(&mutex_);
    const auto it = calls_.find(peer);
    if (--it->second == 0) calls_.erase(it);
  }

 private:
  const int64_t max_calls_;
  absl::Mutex mutex_;
  std::map<std::string, int64_t> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cpshard
