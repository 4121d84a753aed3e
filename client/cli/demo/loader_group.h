// All loaders of the demo on one layout: started, listened to, started again when somebody kills
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/cli/demo/child_process.h"
#include "client/cli/demo/loader.h"
#include "client/cli/demo/tally.h"

namespace cpshard::demo {

// What the group tells while it works; each is called on the thread of Run.
struct GroupListener {
  absl::FunctionRef<absl::Status()> check_server;  // now and then; an error ends the run
  absl::FunctionRef<void(const Tally&)> progress;
  absl::FunctionRef<void(const std::string&)> say;  // a line for the user
};

// Not thread-safe.
class LoaderGroup {
 public:
  // `task`: that of loader 0. `kill`: the loader that the group itself kills with SIGKILL half-way
  // through its share, with batches in flight.
  LoaderGroup(const LoaderTask& task, std::optional<int64_t> kill, const GroupListener& listener);

  // Blocks until every loader has ended by itself. A loader that somebody kills is started again
  // from its first batch that was not reported, 3 times at most. No loader is left when the group
  // goes.
  // Aborted: one was killed more often; a loader's own status with its words: it failed; Internal:
  // one crashed; those of check_server; InvalidArgument: a loader that has no batches cannot be
  // killed.
  absl::StatusOr<Figures> Run();

 private:
  struct Loader {
    ChildProcess process;
    int64_t restarts = 0;
    bool done = false;
  };

  absl::StatusOr<ChildProcess> Start(int64_t index) const;
  absl::Status Listen(int64_t index);
  absl::Status Take(int64_t index, const std::string& line);
  absl::Status Ended(int64_t index);
  void WaitForNews() const;
  bool AllDone() const;

  const LoaderTask task_;
  std::optional<int64_t> kill_;  // still to be killed
  const GroupListener listener_;
  Tally tally_;
  std::vector<Loader> loaders_;
};

}  // namespace cpshard::demo
