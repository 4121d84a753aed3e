// The streams of a server that are open now, and the clock that they are watched by.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/stream/stream_reactor.h"

namespace cpshard {

// Thread-safe. One thread of its own.
class StreamWatch {
 public:
  // `on_tick` is called with every tick, by the watch's thread.
  explicit StreamWatch(std::function<void(absl::Time)> on_tick = {});
  ~StreamWatch();  // Precondition: no stream is open

  void Add(const std::shared_ptr<StreamReactor>& stream);
  void Remove(StreamReactor* stream);

  // Those that are open and those that will be.
  void Drain();

 private:
  std::vector<std::shared_ptr<StreamReactor>> Alive() const;
  void Loop();

  const std::function<void(absl::Time)> on_tick_;
  mutable absl::Mutex mu_;
  std::map<StreamReactor*, std::weak_ptr<StreamReactor>> streams_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace cpshard
