// What ListGroups and DumpGroup show of a group, as plain values: who is there, how far everybody
// is, who waits for whom.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/session_messages.h"

namespace cpshard {

struct ReaderStreamView {
  std::string stream;
  int64_t pass = 0;
  bool open = false;
  int64_t next_step = 0;   // first step not consumed
  int64_t delivered = -1;  // the last step sent; -1: none
};

struct ReaderView {
  std::string reader;
  int64_t cp_rank = 0;
  int64_t incarnation = 0;
  bool opened = false, connected = false, closed = false;
  std::optional<double> away_seconds;  // without a connection
  std::vector<ReaderStreamView> streams;
  int64_t wants = 0;  // unanswered
  // Of its process, as its commits said: what its trainer waited, in so much wall time.
  StallTime stall;
  int64_t elapsed_us = 0;  // 0: nothing is known
};

struct LoaderView {
  int64_t loader = 0;
  int64_t incarnation = 0;
  bool known = false, connected = false;
  std::optional<double> silent_seconds;  // nothing came of it
  std::optional<int64_t> next_step;      // its first step that is not complete
};

struct DataStreamView {
  std::string stream;
  int64_t pass = 0, epoch = 0;
  std::optional<int64_t> floor, frontier, end_step;  // absent: no position; no agreed end
  int64_t window_steps = 0;                          // that can be in memory
  int64_t complete_steps = 0, granted_steps = 0;     // in the window
  int64_t used_bytes = 0, guaranteed_bytes = 0;      // of memory
  int64_t max_step_bytes = 0;                        // as readers named it: of batches
  int64_t num_loaders = 0;
  std::vector<LoaderView> loaders;
  std::string waiting_for;     // a sentence; empty: for nobody
  int64_t digest_changes = 0;  // batches that came again as other ones, in another epoch ...
  std::string notice;          // ... the last of them, a sentence; empty: none
};

struct GroupView {
  std::string group;
  int64_t generation = 0;
  bool opened = false, ended = false;
  std::string failure;  // why the generation's requests are refused; empty: they are not
  int64_t cp_size = 0;
  std::vector<ReaderView> readers;
  std::vector<DataStreamView> streams;
  bool declared = false;                        // in the server's configuration
  ExecutorKind executor = ExecutorKind::kAuto;  // as its readers ask for it
};

}  // namespace cpshard
