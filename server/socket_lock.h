// Ownership of a unix socket path. Without it a second server takes a live path over in silence and
// removes the socket when it goes.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/owned_fd.h"

namespace cpshard {

// Holds an exclusive lock on PATH.lock. Move-only; released with the object or the process. The
// lock file stays: removing it would let two servers lock two different files.
class SocketLock {
 public:
  // FailedPrecondition: another process holds it, or `path` exists and is no socket.
  // InvalidArgument: a path longer than the system's limit. NotFound and others: the folder.
  static absl::StatusOr<SocketLock> Acquire(const std::string& path);

 private:
  explicit SocketLock(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
};

}  // namespace cpshard
