// A schedule before it runs: the groups, the limits of the server and the faults that will happen.
// Drawn of a seed; edits make it smaller, for the search of a small one that fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/session/delivery.h"
#include "tests/simulation/job.h"

namespace cpshard::simulation {

enum class FaultKind {
  kServerCrash,
  kServerDrain,  // then it ends, and another one starts
  kReaderBreak,  // the connection
  kReaderCrash,
  kReaderFreeze,
  kReaderAway,  // frozen, and its connection is cut off, until it has left by the server's clock
  kReaderSlow,  // takes shards off the wire slowly
  kLoaderBreak,
  kLoaderCrash,
  kLoaderFreeze,
  kLoaderReplaced,  // frozen; another process takes its seat; it wakes
  kLoaderSlow,
  kLoaderRepeats,  // pushes everything twice for a while
  kLoaderDamages,  // what it pushes does not land
  kRestart,        // of a group, from a checkpoint
  kRestartTwice,   // ... from the start, and then from the last one
  kTwoLaunchers,   // ... by two at once
  kRestartFrozen,  // ... whose old processes are frozen, and wake
  kCount
};

struct Fault {
  FaultKind kind = FaultKind::kServerCrash;
  int64_t at_us = 0;
  int64_t duration_us = 0;
  int group = 0;
  uint64_t who = 0;   // which process, modulo how many there are
  int64_t value = 0;  // of the kind: steps back, another cp_size ...
  bool dropped = false;
};

struct GroupScenario {
  Job job;
  int64_t cp_size = 1, readers_per_rank = 1, prefetch = 1;
  int64_t checkpoint_every = 3;  // items
  bool shared_loaders = false;   // one process serves all data streams
  bool rewinds = true;           // its sources can go back
  bool same_content = true;      // sources make the same again
  bool declared = false;         // in the server's configuration; then cp_size stays
  int64_t train_us = 500, make_us = 300;
  int64_t loader_latency_us = 0;  // beside that of every message
  int64_t land_us = 200;          // that a push takes at most
};

// Faults of the simulated server's last yard, for the checker to find.
enum class Tampering { kNone, kGapForOneRank, kOtherCpForOneRank };

struct Scenario {
  uint64_t seed = 0;
  DeliveryOptions server;
  std::vector<GroupScenario> groups;
  std::vector<Fault> faults;
  int64_t quiet_from_us = 0;  // no faults from then on
  int64_t latency_us = 100;
  Tampering tampering = Tampering::kNone;
};

Scenario Draw(uint64_t seed);

// Edits of a scenario by name: "f3" drops fault 3, "g1" keeps only the first group, "p" one reader
// per rank, "c" cp_size 1, "l" one loader of each data stream, "m" one microbatch of each step, "v"
// no validation, "t" half of the steps.
std::vector<std::string> EditsOf(const Scenario& scenario);
// InvalidArgument: there is no such edit.
absl::Status Edit(const std::string& edit, Scenario& scenario);

const char* NameOf(FaultKind kind);
std::string Describe(const Scenario& scenario);

}  // namespace cpshard::simulation
