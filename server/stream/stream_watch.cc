#include "server/stream/stream_watch.h"

#include <utility>

#include "absl/time/clock.h"

namespace cpshard {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

}  // namespace

StreamWatch::StreamWatch(std::function<void(absl::Time)> on_tick)
    : on_tick_(std::move(on_tick)), thread_([this] { Loop(); }) {}

StreamWatch::~StreamWatch() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  thread_.join();
}

void StreamWatch::Add(const std::shared_ptr<StreamReactor>& stream) {
  bool draining;
  {
    absl::MutexLock lock(&mu_);
    streams_[stream.get()] = stream;
    draining = draining_;
  }
  if (draining) stream->Drain(/*at_once=*/true);
}

void StreamWatch::Remove(StreamReactor* stream) {
  absl::MutexLock lock(&mu_);
  streams_.erase(stream);
}

void StreamWatch::Drain() {
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  for (const auto& stream : Alive()) stream->Drain(/*at_once=*/false);
}

std::vector<std::shared_ptr<StreamReactor>> StreamWatch::Alive() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<StreamReactor>> alive;
  for (const auto& [key, weak] : streams_) {
    if (auto stream = weak.lock()) alive.push_back(std::move(stream));
  }
  return alive;
}

void StreamWatch::Loop() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopped_), kTick)) return;
    }
    for (const auto& stream : Alive()) stream->Tick(absl::Now());
    if (on_tick_) on_tick_(absl::Now());
  }
}

}  // namespace cpshard
