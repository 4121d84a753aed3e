// A cpshardd of a test's own: the built program, on an address that stays the same from one start
// to the next.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cpshard {

class ServerProgram {
 public:
  // The address is free now: a unix socket in a folder of the object's own, or a port of loopback.
  static std::string FreeUnixAddress(const std::string& folder);
  static std::string FreeTcpAddress();

  // Does not start it yet. `flags`: beside --listen.
  explicit ServerProgram(std::string address, std::vector<std::string> flags = {});
  ~ServerProgram();  // Kill

  ServerProgram(const ServerProgram&) = delete;
  ServerProgram& operator=(const ServerProgram&) = delete;

  const std::string& address() const { return address_; }

  void Start();      // does not wait until it listens
  void Kill();       // SIGKILL, as a machine that goes down
  void Terminate();  // SIGTERM; does not wait
  void Freeze();     // SIGSTOP; it stands still when this returns
  void Thaw();
  int Wait();  // its exit status; -1: by a signal

 private:
  void Signal(int signal) const;

  const std::string address_;
  const std::vector<std::string> flags_;
  pid_t pid_ = -1;
};

}  // namespace cpshard
