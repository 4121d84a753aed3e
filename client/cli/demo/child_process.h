// This program again, as a child of the demo: a loader or a rank.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cpshard::demo {

// Move-only. The process dies with the object, and with this process.
class ChildProcess {
 public:
  // `words`: its arguments, from the subcommand on. Internal: no process or no pipe is to be had.
  static absl::StatusOr<ChildProcess> Start(std::vector<std::string> words);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // Appends what poll() has to watch; nothing any more once the process has ended.
  void AddTo(std::vector<pollfd>& watched) const;

  // The lines that it has reported since the last call; does not wait. A line that a kill has cut
  // off is left out.
  std::vector<std::string> ReadLines();

  // Writes an empty line to its standard input. One that has ended does not hear it.
  void GoOn() const;

  bool ended() const { return out_ < 0 && err_ < 0; }

  // Of a process that has ended: as waitpid tells it.
  int WaitStatus();

  // What it wrote to its standard error, up to 8 KB.
  const std::string& errors() const { return errors_; }

  void Kill() const;  // SIGKILL

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  // ends of pipes; -1: the other end is closed
  std::string unfinished_;             // line
  std::string errors_;
};

}  // namespace cpshard::demo
