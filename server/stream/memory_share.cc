#include "server/stream/memory_share.h"

namespace cpshard {

bool MemoryShare::Reserve(const std::string& peer, int64_t bytes, int64_t own) {
  absl::MutexLock lock(&mutex_);
  const auto it = held_.find(peer);
  const int64_t held = it == held_.end() ? 0 : it->second;
  if (held > own && held > max_bytes_ - bytes) return false;
  if (bytes > 0) held_[peer] = held + bytes;
  return true;
}

void MemoryShare::Release(const std::string& peer, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto it = held_.find(peer);
  if (it == held_.end()) return;
  it->second -= bytes;
  if (it->second <= 0) held_.erase(it);
}

int64_t MemoryShare::held(const std::string& peer) const {
  absl::MutexLock lock(&mutex_);
  const auto it = held_.find(peer);
  return it == held_.end() ? 0 : it->second;
}

}  // namespace cpshard
