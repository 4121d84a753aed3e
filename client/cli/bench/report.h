// What the benchmark prints: one table, and the same as JSON.
#pragma once

#include <string>
#include <vector>

#include "client/cli/bench/row.h"
#include "proto/replies.h"

namespace cpshard::bench {

// What the figures depend on beside the machine.
struct Setting {
  ServerInfo server;
  std::vector<Target> targets;
  ExecutorKind executor = ExecutorKind::kAuto;  // that is asked for; kAuto: the server's own choice
  Options options;
  int64_t cp_size = 1;
  std::string congestion_control;  // of TCP, as the kernel has it now

  // As answers name it: MeasureRow takes no others.
  std::string executor_name() const;
};

// "unknown" where the kernel does not say.
std::string TcpCongestionControl();

void PrintSetting(const Setting& setting);
void PrintHead();               // at once, as the rows: a run takes a while
void PrintRow(const Row& row);  // and what disturbed it

std::string ToJson(const Setting& setting, const std::vector<Row>& rows);

}  // namespace cpshard::bench
