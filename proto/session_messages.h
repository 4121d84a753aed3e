// What loaders, readers and the server say to each other in a session, as plain values. The codec
// (proto/session_codec.h) puts them on the wire; the state machines of both sides speak them
// directly, so that a simulation can put the two together without a wire.
//
// Names. A *group* is one CP group. A *data stream* is a named sequence of steps (train,
// validation); a step has one or more microbatches, each one batch. A *pass* goes over a data
// stream once, from step 0 on. A *reader* is a process of rank cp_rank; a *loader* i of L owns the
// steps with step % L == i. An *epoch* of a data stream ends when it is sought: it has nothing to
// do with epochs of a data set.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/exec/executor_kind.h"

namespace cpshard {

inline constexpr int64_t kMaxLoaderStateBytes = int64_t{64} << 10;

// A step of a data stream.
struct StepAddress {
  std::string stream;
  int64_t pass = 0;
  int64_t step = 0;
  friend auto operator<=>(const StepAddress&, const StepAddress&) = default;
};

// What a loader needs in order to go on behind `step`. Opaque.
struct LoaderState {
  int64_t step = 0;
  std::string state;
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

// The resume state of a step N: of every loader its latest state at or before N. What a trainer's
// checkpoint holds. A loader that owns no step up to N has no entry.
struct ResumeState {
  int64_t num_loaders = 0;  // L; 0: not known, only without entries
  std::map<int64_t, LoaderState> loaders;
  friend bool operator==(const ResumeState&, const ResumeState&) = default;
};

// Counted before the cut over all microbatches of a step: a rank that has shards cannot count them.
struct StepTotals {
  int64_t num_microbatches = 0;
  // Absent: some batch of the step does not tell (BatchTotals).
  std::optional<int64_t> num_label_tokens, num_tokens_excl_tail_pad;
  friend bool operator==(const StepTotals&, const StepTotals&) = default;
};

// --- readers to server
// ----------------------------------------------------------------------------

// A data stream as one reader stands in it.
struct ReaderStream {
  std::string name;
  int64_t pass = 0;            // that the reader is in, or will open next
  int64_t next_step = 0;       // the first step that it has not consumed
  int64_t received = -1;       // the last step that it has received; -1: none in this pass
  bool closed = false;         // it is not in `pass` yet: it opens it with its first request
  bool finished = false;       // it will not open this data stream again; implies closed
  int64_t max_step_bytes = 0;  // of memory for a step, all microbatches; alike for all readers
  // Of exactly next_step - 1. Absent: the reader does not know it.
  std::optional<ResumeState> resume;
  friend bool operator==(const ReaderStream&, const ReaderStream&) = default;
};

// Opens a reader's session. What a generation agrees on - the fields up to resume - is fixed by the
// first reader that opens it.
struct OpenSession {
  std::string group;
  int64_t generation = 0;  // the launcher's, higher at every start of the whole group
  std::string attempt;     // of the launcher: two that open one generation differ here
  int64_t cp_size = 1;
  int64_t readers_per_rank = 1;  // tensor-parallel peers are readers of one rank
  std::string options;           // serialised; compared byte by byte
  std::string fingerprint;       // of the data set, may be empty; what the window holds of another
                                 // one is not used
  std::string job;               // with `job_groups`: see there; may be empty
  int64_t job_groups = 1;  // groups of the job on this server that agree on min_padded_len (D14)
  ExecutorKind executor = ExecutorKind::kAuto;  // the bytes of shards do not depend on it
  std::map<std::string, int64_t> resume;  // data stream -> first step that the checkpoint lacks

  std::string reader;  // names the process' seat; stays when it restarts
  int64_t cp_rank = 0;
  int64_t incarnation = 0;  // higher at every restart of the process
  std::vector<ReaderStream> streams;
};

struct OpenedStream {
  std::string name;
  int64_t pass = 0;
  std::optional<int64_t> floor;  // the first step that can be asked for; absent: no position yet
  std::optional<ResumeState> resume;  // of next_step - 1, where the server knows it
};

struct OpenedSession {
  std::string instance;  // of the server; another one than before: everything it held is gone
  int64_t generation = 0;
  std::vector<OpenedStream> streams;
  std::string executor;  // that makes the shards
};

// Names an open session: the first message of a PullShards call, CloseSession, GetShard.
struct SessionName {
  std::string group;
  int64_t generation = 0;
  std::string reader;
  int64_t incarnation = 0;
};

// Asks for the reader's shards of all microbatches of a step. Answered with a DeliveryHead per
// microbatch, in order, or with one RequestStatus.
struct Want {
  uint64_t id = 0;  // the reader's choice, free again when it is answered
  StepAddress at;
  std::optional<int64_t> microbatch;  // this one alone
  std::optional<int64_t> timeout_ms;  // then DEADLINE_EXCEEDED, which says who is waited for
  std::vector<std::string> keys;      // only these streams of the batch; empty: all
  // This one and those behind it: what came before is here, of an earlier request of this session.
  // Where the server has not sent it in this epoch it begins with microbatch 0.
  std::optional<int64_t> from_microbatch;
};

// Requests of a reader that may wait at a server at a time.
inline constexpr int64_t kMaxWants = 64;

// What a trainer has waited, in microseconds, by what it waited for.
struct StallTime {
  int64_t loader = 0, peer = 0, server = 0, copy = 0;
  friend bool operator==(const StallTime&, const StallTime&) = default;
};

// The reader will not ask for this step again, nor for one before it, in this generation and pass.
struct Commit {
  StepAddress at;
  // Since the reader's last commit that said so, or its open; of all its data streams.
  std::optional<StallTime> stall;  // absent: not known
  int64_t elapsed_us = 0;          // of wall time, with `stall`
};

// The reader has left a pass; it is in the next one from now on, which it opens by asking.
struct PassClosed {
  std::string stream;
  int64_t pass = 0;
  bool finished = false;  // there is no next one
};

// --- server to readers
// ----------------------------------------------------------------------------

// What stands beside a shard.
struct DeliveryHead {
  uint64_t id = 0;  // of the Want
  StepAddress at;
  int64_t microbatch = 0;
  bool last = false;                       // no microbatch of the step follows
  std::optional<StepTotals> totals;        // absent: the step is not complete and its loader
                                           // did not declare them
  uint64_t digest = 0;                     // of the batch
  int64_t owner = 0;                       // the loader of the step ...
  int64_t num_loaders = 0;                 // ... of so many
  std::optional<std::string> owner_state;  // with the last microbatch, if the loader gave one
  friend bool operator==(const DeliveryHead&, const DeliveryHead&) = default;
};

// --- loaders to server
// ----------------------------------------------------------------------------

struct LoaderStream {
  std::string name;
  int64_t pass = 0;
  int64_t released = 0;  // it was told that steps before this one are released, in this pass and in
                         // the generation that the hello names
  int64_t held_from =
      0;  // it still holds what it made from this step on, and can make what follows
};

// The first message of a loader on a connection.
struct LoaderHello {
  std::string group;
  int64_t loader = 0;           // i ...
  int64_t num_loaders = 1;      // ... of L
  int64_t incarnation = 0;      // higher at every restart of the process
  int64_t generation_seen = 0;  // the highest that a server told it of; 0: none
  std::vector<LoaderStream> streams;
};

// Head of a batch that a loader pushes.
struct PushHead {
  StepAddress at;
  int64_t epoch = 0;  // as Position and LoaderCredit said
  int64_t microbatch = 0;
  bool last_microbatch = false;
  // Declared with microbatch 0, so that microbatches can be delivered before the step is complete.
  // The server holds the loader to it.
  std::optional<StepTotals> totals;
  std::optional<uint64_t> digest;    // of the batch; checked against what landed
  std::optional<std::string> state;  // with the last microbatch: what is needed to go on behind
                                     // this step; at most kMaxLoaderStateBytes
};

// The data stream has no step `end_step` nor one after it, in this pass. All L loaders say so,
// after every Position anew.
struct EndOfStream {
  std::string stream;
  int64_t pass = 0;
  int64_t epoch = 0;
  int64_t end_step = 0;
};

// --- server to loaders
// ----------------------------------------------------------------------------

// Where a loader is to go on. Sent once everybody is there, and again when that changes.
struct Position {
  int64_t generation = 0;
  std::string stream;
  int64_t pass = 0;
  int64_t epoch = 0;
  int64_t from_step = 0;             // the first step of this loader that the server lacks ...
  std::vector<int64_t> landed;       // ... but for these microbatches
  std::optional<LoaderState> state;  // this loader's latest below from_step; absent: none
  int64_t released = 0;              // steps before this one will not be asked for
  friend bool operator==(const Position&, const Position&) = default;
};

// A step may be pushed. Repeated after every Position.
struct LoaderCredit {
  StepAddress at;
  int64_t epoch = 0;
  int64_t bytes = 0;  // of all its microbatches
  friend bool operator==(const LoaderCredit&, const LoaderCredit&) = default;
};

// The copies of steps before this one need not be kept.
struct Released {
  std::string stream;
  int64_t pass = 0;
  int64_t epoch = 0;
  int64_t before = 0;
  friend bool operator==(const Released&, const Released&) = default;
};

// All readers have left the pass.
struct PassDone {
  std::string stream;
  int64_t pass = 0;
  bool finished = false;  // there is no next one
  friend bool operator==(const PassDone&, const PassDone&) = default;
};

}  // namespace cpshard
