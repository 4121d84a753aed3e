// What happened in one schedule, in the order in which the server was called and answered: all that
// the checker sees.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/session_messages.h"
#include "tests/simulation/job.h"

namespace cpshard::simulation {

// A process: a reader or a loader, from its start to its end.
struct Process {
  bool reader = true;
  int group = 0;
  int64_t incarnation = 0;
  // of a reader
  std::string name;
  int64_t generation = 0;
  std::string attempt;
  int64_t cp_size = 0, readers_per_rank = 0, cp_rank = 0;
  size_t first_item = 0;  // of Job::items
  // of a loader
  int64_t loader = 0;
  bool rewinds = true;
};

enum class Kind {
  kServerStarted,
  // calls, as the server answered them
  kOpened,
  kWanted,
  kCommitted,
  kPassClosed,
  kClosed,  // the session, for good
  kPushed,  // a microbatch has landed
  kEndDeclared,
  // what the server said, in the order of sending
  kDelivered,
  kStatus,
  kEnded,  // a call
  kPosition,
  kReleased,
  kMemory,  // after a call
  // what clients did
  kTold,     // a loader has read a kPosition or kReleased: steps before `step` are released
  kRewound,  // a loader's source was asked to go to a step, with a state
  kTrained,  // a step has reached the trainer, whole
  kTrainedEnd,
  kCheckpoint,  // a trainer has saved one stream's state
  kClientFault,
  kFinished,  // all groups have
  kStuck,
};

struct Record {
  Kind kind = Kind::kServerStarted;
  int64_t at_us = 0;
  int instance = 0;  // of the server
  int process = -1;  // of History::processes
  uint64_t call = 0;
  int stream = -1;
  int64_t pass = 0, step = 0, microbatch = 0;  // kWanted: the first one that the reader lacks
  uint64_t id = 0;
  int64_t epoch = 0, generation = 0;
  uint64_t digest = 0, content = 0;  // said, and of the bytes
  int64_t cp_size = 0, cp_rank = 0;  // that the shard was cut for
  int64_t owner = 0, num_loaders = 0;
  bool last = false;
  bool again = false, alone = false;  // kWanted: once more; its first microbatch only
  int64_t used = 0, live = 0;         // bytes: as counted by the server, of payloads that there are
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string reason, text;
  int64_t value = -1;  // the end, the floor
  std::optional<StepTotals> totals;
  std::optional<LoaderState> state;
  std::vector<ReaderStream> asked;     // kOpened, kCheckpoint
  std::vector<OpenedStream> answered;  // kOpened
};

struct History {
  std::vector<Job> jobs;  // by group
  std::vector<Process> processes;
  std::vector<Record> records;
  int64_t budget_bytes = 0;
  int64_t replay_steps = 1;
  bool same_content = true;  // no loader makes something else at its second start
};

// The record as a line of text.
std::string Describe(const History& history, const Record& record);

}  // namespace cpshard::simulation
