// The table of the stream benchmark, and the same as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/bench/measure.h"
#include "tests/bench/stream/loopback.h"
#include "tests/bench/stream/rounds.h"

namespace cpshard::bench {

struct Host {
  std::string processor;
  int64_t cores = 0;
  double load = 0;  // runnable processes of the last minute, before the run
  Loopback loopback;
};
Host DescribeHost(const Loopback& loopback);

struct StreamRow {
  TokenShape shape;
  std::string name;
  bool over_tcp = false;  // cpshardd over TCP: the goals are for it
  int64_t in_flight = 1;
  Stats gb_per_second, cpu_seconds_per_gb, client_faults_per_gb, server_faults_per_gb;
  // Rate over the anchor's, taken inside a round; absent for the anchor itself.
  std::optional<Stats> of_touch, of_raw, of_naive, of_memcpy;
  std::optional<Stats> cpu_of_raw;  // processor time over that of R
};

// One row per contender. `samples` is what MeasureInTurn returned.
std::vector<StreamRow> MakeRows(const std::vector<Contender>& contenders, const TokenShape& shape,
                                const std::vector<std::vector<Sample>>& samples);

void PrintHost(const Host& host);
void PrintHead();
void Print(const std::vector<StreamRow>& rows);
void PrintGoals();
std::string ToJson(const Host& host, const std::vector<StreamRow>& rows);

}  // namespace cpshard::bench
