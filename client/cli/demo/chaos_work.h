// What the processes of `cpshard demo --chaos` agree on: the steps of the data streams, the batches
// in them, how they are sharded. Each of them makes any batch by itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/demo/layouts.h"
#include "client/cli/demo/pack.h"
#include "client/cli/demo/text.h"
#include "proto/session_messages.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cpshard::demo {

inline constexpr char kTrain[] = "train";
inline constexpr char kValidation[] = "validation";
inline constexpr int64_t kMaxChaosStepBytes = int64_t{64} << 20;

struct ChaosWork {
  std::string server;  // address
  std::string group = "demo";
  std::string layout = "round_robin";  // the name of one of Layouts()
  int64_t loaders = 4;
  int64_t steps = 40;          // of "train"
  int64_t microbatches = 2;    // of every step
  int64_t length = 1022;       // of the rows of a batch, not padded
  int64_t validate_every = 0;  // steps of "train", then comes a pass of "validation"; 0: never
  int64_t validation_steps = 3;
  std::vector<std::string> files;
  size_t max_bytes = size_t{256} << 10;  // of text

  bool validates() const { return validate_every > 0; }
  // Passes of "validation" that are due once so many steps of "train" have been consumed.
  int64_t PassesAfter(int64_t steps_done) const {
    return validates() ? steps_done / validate_every : 0;
  }
  int64_t StepsOf(const std::string& stream) const {
    return stream == kTrain ? steps : validation_steps;
  }
};

// The work as arguments of a process, and back. The files are not among them.
std::vector<std::string> ToWords(const ChaosWork& work);
void AddOptions(CLI::App& command, ChaosWork& work);

// Thread-safe once made.
class ChaosBatches {
 public:
  // NotFound: no text. InvalidArgument: an unknown layout, or a step that would not fit.
  static absl::StatusOr<std::unique_ptr<const ChaosBatches>> Read(const ChaosWork& work);

  const DemoLayout& layout() const { return layout_; }

  struct Step {
    std::vector<Batch> microbatches;
    StepTotals totals;  // as the packing counts them
  };
  absl::StatusOr<Step> Make(const StepAddress& at, BufferPool& pool) const;

 private:
  ChaosBatches(const ChaosWork& work, DemoLayout layout, std::vector<Document> documents);

  const int64_t microbatches_;
  const DemoLayout layout_;
  const std::vector<Document> documents_;
  const Packing packing_;
};

}  // namespace cpshard::demo
