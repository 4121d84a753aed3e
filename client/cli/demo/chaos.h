// `cpshard demo --chaos`: loaders and ranks as processes, and a server, each of which is killed and
// started again while the others go on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/demo/chaos_schedule.h"
#include "client/cli/demo/chaos_tally.h"
#include "client/cli/demo/chaos_work.h"
#include "client/cli/demo/child_process.h"
#include "client/cli/server_process.h"

namespace cpshard::demo {

// Of the server: then a rank is ahead of another one by less than the steps after the last kill.
inline constexpr int64_t kChaosAheadSteps = 4;

struct KillFigures {
  Kill kill;
  absl::Duration back;     // from the kill to the first word of the new process
  absl::Duration longest;  // that a rank waited for one step, until the next kill
};

struct ChaosFigures {
  std::vector<KillFigures> kills;
  std::string difference;  // empty: every rank has had what a run without faults would give it
  absl::Duration taken;
};

// One run. Not thread-safe.
class ChaosRun {
 public:
  // The work names the server, which is ready.
  ChaosRun(ChaosWork work, std::vector<Kill> kills, ChaosTally tally, ServerProcess& server);

  // Blocks until all loaders and ranks have ended by themselves; none is left when the object goes.
  // The status of one that fails, with its words; Internal: one crashed; DeadlineExceeded: no word
  // from any of them for too long.
  absl::StatusOr<ChaosFigures> Run();

 private:
  struct Member {
    std::string name;
    std::vector<std::string> words;  // of its command line, but for `state` and the files
    std::optional<int64_t> rank;     // absent: a loader
    std::string state;               // as the rank last told it
    std::optional<ChildProcess> process;
    bool done = false;
  };

  absl::Status Start(Member& member) const;
  void WaitForNews();
  absl::Status Listen(Member& member);
  absl::Status Take(Member& member, const std::string& text);
  absl::Status Ended(Member& member);
  absl::Status Carry(const Kill& kill);
  absl::Status KillMember(Member& member);
  bool AllDone() const;

  const ChaosWork work_;
  const std::vector<Kill> kills_;
  ChaosTally tally_;
  ServerProcess& server_;
  std::vector<Member> loaders_, ranks_;
  std::vector<KillFigures> done_;
  Member* awaited_ = nullptr;  // has been started again and has not said anything yet
  absl::Time killed_, heard_;
};

}  // namespace cpshard::demo
