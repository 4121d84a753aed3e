// The rows of one batch size, measured in turn: the host is shared with others, and a slow second
// should hit all rows alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/stream/process.h"

namespace cpshard::bench {

// What rows are compared with.
enum class Anchor { kNone, kMemcpy, kRaw, kRawTouch, kNaive };

struct Contender {
  std::string name;
  Anchor anchor = Anchor::kNone;
  const Process* client = nullptr;
  pid_t server = 0;  // 0: none
  int64_t in_flight = 1;
  int64_t passes = 2;     // of a batch's bytes in a trip: there and back
  bool over_tcp = false;  // cpshardd over TCP: what the goals are for
};

// One round of a row. GB: 1e9 bytes moved, the batch and its shards both.
struct Sample {
  double gb_per_second = 0;       // of wall time
  double cpu_seconds_per_gb = 0;  // user and system, client and server
  double client_faults_per_gb = 0;
  double server_faults_per_gb = 0;
};

struct Effort {
  int64_t rounds = 5;
  double seconds_per_row = 0.25;  // of one row in one round
};

// samples[contender][round]. The one that begins changes from round to round. Before each sample
// come trips that do not count: pages, caches and the congestion window are as in a steady stream.
std::vector<std::vector<Sample>> MeasureInTurn(const std::vector<Contender>& contenders,
                                               const TokenShape& shape, const Effort& effort);

}  // namespace cpshard::bench
