// The executors of a server: its own choice, and the CPU's, which a request may name.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/exec/executor.h"
#include "core/exec/executor_kind.h"
#include "core/exec/place.h"

namespace cpshard {

// Thread-safe.
class Executors {
 public:
  // `on_lost` is told once that the device of `own` is lost, with CUDA's text: on the thread of the
  // Run that saw it, which may hold locks. From then on a Run there returns Unavailable, marked as
  // IsDeviceLost: the process has to be started again, and the peer to try again then.
  explicit Executors(Place own, std::function<void(const absl::Status&)> on_lost = {});
  ~Executors();

  // kAuto: the server's own choice. FailedPrecondition, with that choice, why it is that one, and
  // the way out: there is no such executor here. What it returns lives as long as this object.
  absl::StatusOr<Executor*> Named(ExecutorKind kind) const;

  absl::string_view name() const;  // of the server's own choice: "cpu", "cuda:0"
  const std::string& reason() const { return reason_; }

  // Where the server's batches and shards lie; null: in ordinary memory.
  const std::shared_ptr<PinnedBlocks>& blocks() const { return blocks_; }

 private:
  const std::string reason_;
  const std::shared_ptr<PinnedBlocks> blocks_;
  const std::unique_ptr<Executor> cpu_;
  const std::unique_ptr<Executor> cuda_;  // null: the server's own choice is the CPU
};

// Whether `status` is of a Run that was under way when the device was lost, and may be what lost
// it: of one, or as many as go on at a time, not of those that came after.
bool WasUnderWayWhenLost(const absl::Status& status);

}  // namespace cpshard
