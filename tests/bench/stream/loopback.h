// The network that the rows run on.
#pragma once

#include <string>

namespace cpshard::bench {

struct Loopback {
  bool is_private = false;         // a network namespace of our own
  std::string congestion_control;  // in force for every TCP row
};

// Moves this process, and those that it starts later, into a network namespace of its own whose
// TCP uses reno - without loss the same as cubic - where the system lets it; otherwise the host's
// loopback stays. Why: hosts may use bbr, which paces loopback and costs a factor of its bandwidth.
// Only for a process without threads.
Loopback EnterPrivateLoopback();

// The network as it is.
Loopback HostLoopback();

}  // namespace cpshard::bench
