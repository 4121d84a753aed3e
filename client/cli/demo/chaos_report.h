// What the loaders and ranks of `cpshard demo --chaos` tell the process that started them: one JSON
// object a line.
//
//   {"event": "step", "stream": "train", "pass": 0, "step": 7, "batches": ["9f..", ...], ...}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/session_messages.h"

namespace cpshard::demo {

// Events.
inline constexpr char kOpened[] = "opened";  // a rank is there
inline constexpr char kStep[] = "step";      // ... has consumed a step
inline constexpr char kEnd[] = "end";        // ... was told that there is no such step
inline constexpr char kLeft[] = "left";      // ... has left the pass
inline constexpr char kMaking[] = "making";  // a loader makes a step

struct ChaosLine {
  std::string event;
  StepAddress at;
  // Of kStep, per microbatch: digests of the batch, and of the rank's shard of it.
  std::vector<std::string> batches, shards;
  double waited = 0;       // seconds, for this step
  std::string difference;  // between the shards and what the rank makes by itself; empty: none
  // Of a rank: the TrainState that it would save now. What is not reported it has not consumed.
  std::string state;
  friend bool operator==(const ChaosLine&, const ChaosLine&) = default;
};

// 16 hexadecimal digits.
std::string NameOfDigest(uint64_t digest);

// Where a process can be held: "step/train/0/7".
std::string MomentOf(const ChaosLine& line);

// Without a line break.
std::string ToLine(const ChaosLine& line);

// InvalidArgument, with the line: not what ToLine writes.
absl::StatusOr<ChaosLine> ParseChaosLine(absl::string_view text);

// Says where its process is. At some moments it waits to be told to go on.
class ChaosReporter {
 public:
  ChaosReporter(int in, int out, std::vector<std::string> holds);

  absl::Status Say(const ChaosLine& line) const;

 private:
  const int in_, out_;
  const std::vector<std::string> holds_;
};

}  // namespace cpshard::demo
