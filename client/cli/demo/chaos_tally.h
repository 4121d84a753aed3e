// What the ranks of `cpshard demo --chaos` have consumed, beside what they should have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/demo/chaos_report.h"
#include "client/cli/demo/chaos_work.h"

namespace cpshard::demo {

// Digests of a step as it is made without server, loader or fault.
struct ExpectedStep {
  std::vector<std::string> batches;              // of every microbatch
  std::vector<std::vector<std::string>> shards;  // likewise, of every rank
};

// Shards the steps of "train" in this process.
absl::StatusOr<std::vector<ExpectedStep>> ShardInProcess(const ChaosWork& work,
                                                         const ChaosBatches& batches);

// Not thread-safe.
class ChaosTally {
 public:
  ChaosTally(std::vector<ExpectedStep> expected, int64_t ranks);

  // What a rank reports, whichever process it is by now.
  void Add(int64_t rank, const ChaosLine& line);

  // The first way in which something is not as it should be: every rank every step of "train", in
  // order, each once, with the expected digests, and then the end. Empty: all is equal.
  std::string Difference() const;

 private:
  struct Progress {
    int64_t next_step = 0;
    bool ended = false;
  };

  std::string Judge(Progress& progress, int64_t rank, const ChaosLine& line) const;

  const std::vector<ExpectedStep> expected_;
  std::vector<Progress> ranks_;
  std::string first_;  // difference
};

}  // namespace cpshard::demo
