// A call as those who watch over all of them see it.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace cpshard {

class WatchedCall {
 public:
  virtual ~WatchedCall() = default;

  // Called several times a second: gives up what makes no progress.
  virtual void Tick(absl::Time now) = 0;

  // Nothing new is begun; the call ends once nothing is under way, after a moment or at once.
  virtual void Drain(bool at_once) = 0;
};

// What a stalled call gets to let go of its buffers before its connection is cut.
inline constexpr absl::Duration kCancelGrace = absl::Seconds(2);

// Who watches over the calls of a server. Everything outlives the calls.
struct CallOwner {
  // Ends the connection of a call, given its peer(): gRPC cannot let go of it otherwise. That name
  // is to be had only as a call begins.
  std::function<void(const std::string& peer)> cut_connection;
  // Who that peer is, for the log.
  std::function<std::string(const std::string& peer)> describe_peer;
  // The call is done with; nothing of it is used any more.
  std::function<void(WatchedCall*)> on_done;
};

}  // namespace cpshard
