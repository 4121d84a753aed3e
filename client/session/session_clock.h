// The times of a session's client: when to connect, when to try again what was refused for now,
// when a server has been silent for too long. No threads; time is handed in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/backoff.h"

namespace cpshard {

// Whether the same may succeed at another time, or with another server at this address.
bool MayPass(const absl::Status& status);

// Not thread-safe.
class SessionClock {
 public:
  // A server that owes an answer and gives no sign of life for so long is not waited for: nothing
  // else notices one that stands still behind a unix socket.
  static constexpr absl::Duration kSilence = absl::Seconds(20);

  explicit SessionClock(uint32_t seed) : backoff_(seed) {}

  // --- connection

  bool WantsConnection(absl::Time now) const { return link_ == Link::kDown && now >= connect_at_; }
  void Connecting() { link_ = Link::kConnecting; }
  void Up(absl::Time now);
  // `at_least`: what the server asked for.
  void Down(absl::Time now, std::optional<absl::Duration> at_least);
  bool up() const { return link_ == Link::kUp; }

  // The server has said something: it works. (Connections that never get so far are made ever more
  // slowly.)
  void Heard(absl::Time now);
  void Wrote(absl::Time now) { heard_ = now; }  // it takes what is sent

  // --- what is outstanding

  // Something waits to be tried again, from now on, or not any more.
  void Postponed(bool postponed, absl::Time now);
  void PostponeFor(absl::Duration at_least) { pause_ = at_least; }
  // True once: it is time.
  bool TakeAgain(absl::Time now);

  // The server owes something, from now on, or not any more.
  void Owed(bool owed, absl::Time now);
  // True once: it has been silent for too long.
  bool TakeSilence(absl::Time now);

  // When one of the above will be true.
  absl::Time NextEvent() const;

 private:
  enum class Link { kDown, kConnecting, kUp };

  Backoff backoff_;
  Link link_ = Link::kDown;
  absl::Time connect_at_ = absl::InfinitePast();
  absl::Time heard_ = absl::InfinitePast();
  bool owed_ = false;
  absl::Duration pause_;
  absl::Time again_at_ = absl::InfiniteFuture();
};

}  // namespace cpshard
