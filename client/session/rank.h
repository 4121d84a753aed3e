// A rank's reader: its shards of every step, in order, each once, whatever restarts.
//
//   auto rank = Rank::Open("unix:/run/cpshard/cpshard.sock", {.group = "job7/dp3", .cp_size = 8,
//       .cp_rank = 3, .generation = 1, .options = options, .streams = {{.name = "train"}}});
//   while (true) {
//     absl::StatusOr<std::optional<RankStep>> step = (*rank)->Next("train");
//     if (!step.ok() || !step->has_value()) break;          // an error; the end of the pass
//     Train(**step);
//     (*rank)->Consumed("train");                            // the weights have seen it
//     if (wants_checkpoint) Save((*rank)->State());          // with the weights
//   }
//
// A restart of the server in between is seen as time. What the reader has received it does not ask
// for again.
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
#include "core/exec/executor_kind.h"
#include "core/exec/shard.h"
#include "proto/options.h"
#include "proto/session_messages.h"

namespace cpshard {

// A data stream as a checkpoint holds it.
struct StreamState {
  int64_t pass = 0;
  int64_t next_step = 0;  // the first step that the weights have not seen
  ResumeState resume;     // of next_step - 1
  friend bool operator==(const StreamState&, const StreamState&) = default;
};

// What a trainer saves beside its weights. As JSON: ToJson, FromJson.
struct TrainState {
  std::map<std::string, StreamState> streams;
  std::string fingerprint;  // of the data set
  int64_t data_epoch = 0;   // the trainer's own count; not interpreted
  int64_t cp_size = 1;
  std::string options_hash;
  friend bool operator==(const TrainState&, const TrainState&) = default;

  std::string ToJson() const;
  // InvalidArgument, naming the field.
  static absl::StatusOr<TrainState> FromJson(absl::string_view json);
};

struct RankStream {
  std::string name;
  // Of the batches of one step, all microbatches; the server keeps room for it. All ranks alike.
  int64_t max_step_bytes = int64_t{64} << 20;
  bool closed = false;  // not wanted yet: StartPass opens it (validation)
  // As ClosePass(finished) left it: for a process that restarts behind its last pass, and only has
  // to close its session.
  bool finished = false;
};

struct RankOptions {
  std::string group;
  int64_t cp_size = 1, cp_rank = 0;
  int64_t generation = 1;  // of the launcher, one higher at every start of the whole group
  std::string attempt;     // of the launcher
  Options options;         // how batches are sharded; all ranks alike
  std::vector<RankStream> streams;

  // The checkpoint that this generation resumes from. FailedPrecondition from Open, with both
  // values, where it does not fit: another fingerprint, or other options (another cp_size is a
  // re-shard, and fits).
  std::optional<TrainState> resume;
  // Where this process goes on, if that is not where the generation began: a rank that restarts
  // alone has it of itself or of a peer.
  std::optional<TrainState> position;
  std::string fingerprint;
  int64_t data_epoch = 0;
  // Where the server shards; all ranks alike. kCuda: FailedPrecondition from Next where it has
  // none. A later generation may choose another one: the bytes, and states, are the same.
  ExecutorKind executor = ExecutorKind::kAuto;
  std::string job;
  int64_t job_groups = 1;

  std::string reader;  // empty: "rank<cp_rank>"
  int64_t readers_per_rank = 1;
  int64_t incarnation = 0;        // higher at every restart; 0: the time of Open
  int64_t prefetch = 2;           // steps beyond the one that is consumed
  std::vector<std::string> keys;  // streams of a batch that are wanted; empty: all

  // Of memory for shards, from 4 KB blocks up: those that come and those that the trainer holds.
  // The step in hand and the next one have to fit; what is prefetched makes way.
  int64_t max_bytes = int64_t{8} << 30;
  // What Next waits at most.
  absl::Duration timeout = absl::InfiniteDuration();

  // Called on a thread of the Rank when a connection has been lost, with what it ended with. The
  // rank goes on by itself. Not to block: the next connection waits for it.
  std::function<void(const absl::Status&)> on_lost;
};

struct RankMicrobatch {
  RankShard shard;  // tensors are windows on one pooled buffer
  uint64_t digest = 0;
  std::string executor;  // that made it; empty: a server that does not say
};

struct RankStep {
  std::string stream;
  int64_t pass = 0, step = 0;
  StepTotals totals;  // of the whole batch, all ranks
  std::vector<RankMicrobatch> microbatches;
};

// Where the time of the last Next went, as far as the trainer waited. (What was there already costs
// nothing.)
struct Stall {
  absl::Duration loader;  // the step was not complete at the server: its loader was waited for
  absl::Duration peer;    // ... or other ranks: to open, to consume
  absl::Duration server;  // the server was away, or had it and sent it
  absl::Duration copy;    // from messages into this process' memory
  absl::Duration total() const { return loader + peer + server + copy; }
  Stall& operator+=(const Stall& other);
};

struct RankStats {
  int64_t opens = 0;     // sessions opened, the first included
  std::string executor;  // of the server, as it opened the last one
  int64_t steps = 0;     // handed out
  int64_t received_bytes = 0;
  Stall last, all;  // of the last Next, of all
};

// Thread-safe, but a data stream is read by one thread at a time.
class Rank {
 public:
  // Opens the session in the background. InvalidArgument, FailedPrecondition: options that cannot
  // be; what a server refuses comes from Next.
  static absl::StatusOr<std::unique_ptr<Rank>> Open(absl::string_view address, RankOptions options);
  ~Rank();  // hangs up without closing the session: the rank may come back

  // The next step; nullopt: the pass is over. Commits the step before. Blocks.
  // Aborted: a newer generation or process has taken the place, or a peer has left (reason
  // PEER_LEFT: the same call may be made again). FailedPrecondition: the ranks do not agree, or the
  // loaders. DeadlineExceeded: `timeout`; the text says who is waited for. NotFound: no such data
  // stream. Cancelled: Close.
  absl::StatusOr<std::optional<RankStep>> Next(const std::string& stream);

  // The step that Next returned last has been consumed: State counts it from now on.
  void Consumed(const std::string& stream);

  // A pass that is closed begins. A pass is left: what is prefetched is dropped; `finished`: there
  // is no further one.
  void StartPass(const std::string& stream);
  void ClosePass(const std::string& stream, bool finished = false);

  // For a checkpoint, of all data streams: as of the steps consumed, never of those prefetched.
  TrainState State() const;

  // Ends the session; blocks until all ranks of the generation have closed theirs, or `patience`.
  // Once more: OK where it is closed, else what ended it.
  absl::Status Close(absl::Duration patience = absl::Minutes(3));

  RankStats stats() const;

 private:
  class Impl;
  explicit Rank(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace cpshard
