#include "server/stream/call_watch.h"

#include <utility>

#include "absl/time/clock.h"

namespace cpshard {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

}  // namespace

CallWatch::CallWatch(std::function<void(absl::Time)> on_tick)
    : on_tick_(std::move(on_tick)), thread_([this] { Loop(); }) {}

CallWatch::~CallWatch() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  thread_.join();
}

void CallWatch::Add(const std::shared_ptr<WatchedCall>& call) {
  bool draining;
  {
    absl::MutexLock lock(&mu_);
    calls_[call.get()] = call;
    draining = draining_;
  }
  if (draining) call->Drain(/*at_once=*/true);
}

void CallWatch::Remove(WatchedCall* call) {
  absl::MutexLock lock(&mu_);
  calls_.erase(call);
}

void CallWatch::Drain() {
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  for (const auto& call : Alive()) call->Drain(/*at_once=*/false);
}

std::vector<std::shared_ptr<WatchedCall>> CallWatch::Alive() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<WatchedCall>> alive;
  for (const auto& [key, weak] : calls_) {
    if (auto call = weak.lock()) alive.push_back(std::move(call));
  }
  return alive;
}

void CallWatch::Loop() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopped_), kTick)) return;
    }
    for (const auto& call : Alive()) call->Tick(absl::Now());
    if (on_tick_) on_tick_(absl::Now());
  }
}

}  // namespace cpshard
