// A loader process: makes the steps that it owns and pushes them to the server, for as long as the
// readers want them.
//
//   class MySource : public StepSource { ... };
//   MySource train;
//   auto loader = Loader::Start("host:7070", {.group = "job7/dp3", .loader = 0, .num_loaders = 4},
//                               {{"train", &train}});
//   absl::Status ended = (*loader)->Wait();   // OK: all readers are done
//
// What was made is kept until the server says that no reader will need it again, and is pushed
// again to a server that has lost it: a restart of the server is seen by a source only where it
// asks for steps that this process never made, or that were released already.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/batch/batch.h"
#include "proto/session_messages.h"

namespace cpshard {

// What a source makes of one step.
struct SourceStep {
  std::vector<Batch> microbatches;  // at least one
  // Where the source knows them: then microbatches reach the ranks before the step is complete.
  std::optional<StepTotals> totals;
  // What the source needs in order to go on behind this step, at most 64 KiB; comes back in Rewind.
  std::optional<std::string> state;
};

// Makes the steps of one data stream, in order: step i, i + L, i + 2L, ... of loader i of L. Called
// on one thread of the Loader.
class StepSource {
 public:
  virtual ~StepSource() = default;

  // The next step; nullopt: it does not exist, and EndStep says where the data stream ends. Must be
  // the same whenever it is made again: the server compares digests.
  virtual absl::StatusOr<std::optional<SourceStep>> Make(int64_t pass, int64_t step) = 0;

  // The first step that no loader of the data stream has; alike for all of them. Asked after Make
  // has returned nullopt.
  virtual int64_t EndStep(int64_t pass) = 0;

  // The next Make is for `step` of `pass`, which is not the one that would have followed. `state`
  // is that of this loader's latest step before it; absent: there is none, go to the start of the
  // pass. An error ends the loader.
  virtual absl::Status Rewind(int64_t pass, int64_t step,
                              const std::optional<LoaderState>& state) = 0;
};

struct LoaderOptions {
  std::string group;
  int64_t loader = 0;       // i ...
  int64_t num_loaders = 1;  // ... of L
  int64_t incarnation = 0;  // higher at every restart of the process; 0: the time of Start
  bool checksums = false;   // CRC-32C of every body

  // The readers' generation that this loader is started for; 0: whichever there is. A loader that
  // comes to a group whose generation has ended is done at once, unless it names a later one: then
  // it waits for its readers. Readers of an earlier one are fenced by it.
  int64_t generation = 0;

  // Called on a thread of the Loader when the server is going down: it will be back, or another.
  // The loader goes on by itself. Not to block: the connection is made on the same thread.
  std::function<void()> on_drain;
  // Likewise when a connection has been lost, with what it ended with. The next one waits for it.
  std::function<void(const absl::Status&)> on_lost;
};

struct LoaderStats {
  int64_t connects = 0;
  int64_t pushed = 0;  // batches, those pushed again included
  int64_t pushed_again = 0;
  int64_t rewinds = 0;
  int64_t held_bytes = 0;  // of batches that are kept, now
  int64_t held_steps = 0;
  absl::Duration waited;  // by the sources, with a step made and no next one wanted
};

// Thread-safe. Two threads and one connection at a time.
class Loader {
 public:
  // Connects in the background, and again after every loss, with growing waits; `sources` (by data
  // stream) must outlive the object. InvalidArgument: an address or number that cannot be.
  static absl::StatusOr<std::unique_ptr<Loader>> Start(absl::string_view address,
                                                       LoaderOptions options,
                                                       std::map<std::string, StepSource*> sources);

  // Stop, and waits for a Make that is under way.
  ~Loader();

  // Blocks until the loader has ended. OK: all readers have finished with all data streams, or
  // Stop. Otherwise what a source returned, or the server's refusal: Aborted (replaced by a newer
  // process), FailedPrecondition (another number of loaders, a digest that differs, two ends),
  // InvalidArgument (a batch that the group's layout refuses).
  absl::Status Wait();

  void Stop();

  LoaderStats stats() const;

 private:
  class Impl;
  explicit Loader(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace cpshard
