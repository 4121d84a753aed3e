// A cpshardd of the demo's own, as a real process on a unix socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cpshard::demo {

// Move-only. The process is stopped with the object, and when this process dies.
class ServerProcess {
 public:
  // Starts the cpshardd that lies beside this program, on a socket in a folder of its own, where
  // its log goes too. NotFound: there is none; Internal: it cannot be started.
  static absl::StatusOr<ServerProcess> Start();

  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess();

  const std::string& address() const { return address_; }  // "unix:/tmp/.../cpshard.sock"

  // Unavailable, with its exit status: the process has ended by itself.
  absl::Status CheckAlive();

  // What it logged so far.
  std::string Log() const;

  // SIGTERM, then SIGKILL after `patience`. Internal: it did not exit with status 0.
  absl::Status Stop(absl::Duration patience);

 private:
  ServerProcess() = default;
  std::string LogPath() const;

  pid_t pid_ = -1;
  std::string folder_;
  std::string address_;
};

}  // namespace cpshard::demo
