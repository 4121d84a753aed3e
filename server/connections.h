// The accepted sockets, for as long as they are connected. gRPC owns and closes them, and tells
// nobody; a second descriptor of the same socket sees it, and can end the connection at any time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/owned_fd.h"

namespace cpshard {

// Thread-safe. A socket is known by the number of gRPC's descriptor.
class Connections {
 public:
  Connections();

  // Readable while Reap has something to do; negative: the system had no descriptor left.
  int fd() const { return hung_up_.get(); }

  // `fd` stays the caller's. ResourceExhausted and others: the system has no room for another.
  absl::Status Add(int fd);

  // Lets go of those that are shut both ways, by whichever side.
  void Reap();

  // Ends a connection both ways, whatever is queued on it. Unknown: nothing happens.
  void Shut(int fd);
  void ShutAll();

  // Who is at the other end, for people: "127.0.0.1:43210", "[::1]:43210", "pid 71, uid 0" on a
  // unix socket. Empty: unknown, or gone.
  std::string Describe(int fd) const;

  int64_t size() const;

 private:
  void Forget(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OwnedFd hung_up_;  // epoll
  mutable absl::Mutex mutex_;
  std::map<int, OwnedFd> ours_ ABSL_GUARDED_BY(mutex_);  // by gRPC's
};

}  // namespace cpshard
