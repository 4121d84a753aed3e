// SIGINT, SIGTERM and SIGHUP to a command that has a server of its own: the server is killed, its
// folder goes, and then the signal does what it always does, so that a shell sees 128 + its number.
// A signal that is ignored (nohup) stays ignored.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace cpshard {

// From now on the signals remove `files` of `folder`, and the folder. One folder at a time in a
// process; children are not concerned.
void RemoveAtStopSignals(const std::string& folder, const std::vector<std::string>& files);

// ... and kill this child before that; -1: none. Call it before waitpid takes a child that ended:
// its id may be another process's then.
void KillAtStopSignals(pid_t child);

void ForgetStopSignals();  // as they were before

// Holds the signals of this thread back for its lifetime: between the making of a folder or a child
// and the call above that knows it.
class HeldStopSignals {
 public:
  HeldStopSignals();
  ~HeldStopSignals() { Release(); }
  HeldStopSignals(const HeldStopSignals&) = delete;
  HeldStopSignals& operator=(const HeldStopSignals&) = delete;

  // Also for a child between fork and exec, which is what they will end then.
  void Release() const;

 private:
  sigset_t before_;
};

}  // namespace cpshard
