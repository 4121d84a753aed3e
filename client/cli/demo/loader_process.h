// One loader of the demo as a process: `cpshard demo-loader`.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/demo/loader.h"

namespace cpshard::demo {

// Move-only. The process dies with the object, and with this process.
class LoaderProcess {
 public:
  // Runs this program again. Internal: no process or no pipe is to be had.
  static absl::StatusOr<LoaderProcess> Start(const LoaderTask& task);

  LoaderProcess(LoaderProcess&& other) noexcept;
  LoaderProcess& operator=(LoaderProcess&& other) noexcept;
  ~LoaderProcess();

  // Appends what poll() has to watch; nothing any more once the process has ended.
  void AddTo(std::vector<pollfd>& watched) const;

  // The lines that it has reported since the last call; does not wait. A line that a kill has cut
  // off is left out.
  std::vector<std::string> ReadLines();

  bool ended() const { return out_ < 0 && err_ < 0; }

  // Of a process that has ended: as waitpid tells it.
  int WaitStatus();

  // What it wrote to its standard error, up to 8 KB.
  const std::string& errors() const { return errors_; }

  void Kill() const;  // SIGKILL

 private:
  LoaderProcess() = default;

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;  // ends of pipes; -1: the other end is closed
  std::string unfinished_;   // line
  std::string errors_;
};

}  // namespace cpshard::demo
