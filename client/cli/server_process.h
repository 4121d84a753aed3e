// A cpshardd of a command's own, as a real process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/stop_signals.h"
#include "proto/replies.h"

namespace cpshard {

// Move-only, one at a time. The process is stopped with the object, and when this process dies; so
// is its folder removed, but for a SIGKILL of this process (stop_signals.h).
class ServerProcess {
 public:
  // Starts the cpshardd that lies beside this program. It listens on a socket in a folder of its
  // own, where its log goes too, and on the addresses of `more`, e.g. "127.0.0.1:0". Settings of a
  // server in the environment do not reach it; `flags` are passed on, e.g. "--workers=2". NotFound:
  // there is none; others, of the system: it cannot be started.
  static absl::StatusOr<ServerProcess> Start(const std::vector<std::string>& more = {},
                                             const std::vector<std::string>& flags = {});

  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess();

  pid_t pid() const { return pid_; }
  const std::string& address() const { return address_; }  // "unix:.../cpshard.sock"

  // Waits until it answers and has said where it listens. Unavailable, with its exit status: it has
  // ended by itself, which is noticed at once; Unavailable, DeadlineExceeded: it does not answer.
  absl::StatusOr<ServerInfo> WaitUntilReady();

  // All that it listens on, ports chosen by the system included, the socket first.
  // Precondition: it was ready.
  std::vector<std::string> Addresses() const;

  // Unavailable, with its exit status: the process has ended by itself.
  absl::Status CheckAlive();

  // What it logged so far.
  std::string Log() const;

  // SIGKILL, and the same program again, on the same socket. What it logs is appended.
  absl::Status KillAndStartAgain();

  // SIGTERM, then SIGKILL after `patience`. Internal: it did not exit with status 0.
  absl::Status Stop(absl::Duration patience);

 private:
  ServerProcess() = default;
  std::string LogPath() const;
  absl::Status Launch(const HeldStopSignals& held);

  pid_t pid_ = -1;
  std::vector<std::string> words_;  // its command line
  size_t log_begin_ = 0;            // of this process, in the log
  size_t num_addresses_ = 0;
  std::string folder_;
  std::string address_;
};

}  // namespace cpshard
