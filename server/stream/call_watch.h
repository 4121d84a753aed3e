// The calls of a server that are open now, and the clock that they are watched by.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/stream/watched_call.h"

namespace cpshard {

// Thread-safe. One thread of its own.
class CallWatch {
 public:
  // `on_tick` is called with every tick, by the watch's thread.
  explicit CallWatch(std::function<void(absl::Time)> on_tick = {});
  ~CallWatch();  // Precondition: no call is open

  void Add(const std::shared_ptr<WatchedCall>& call);
  void Remove(WatchedCall* call);

  // Those that are open and those that will be.
  void Drain();

 private:
  std::vector<std::shared_ptr<WatchedCall>> Alive() const;
  void Loop();

  const std::function<void(absl::Time)> on_tick_;
  mutable absl::Mutex mu_;
  std::map<WatchedCall*, std::weak_ptr<WatchedCall>> calls_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace cpshard
