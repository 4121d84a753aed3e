// The answer of one batch, to come: what every handle on it shares.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/exec/shard.h"

namespace cpshard {

// Thread-safe.
class PendingBatch {
 public:
  // `give_up` tells the stream that nobody wants the shards; the stream then calls Resolve. Called
  // by Cancel, on its thread, while there is no answer.
  explicit PendingBatch(std::function<void()> give_up = nullptr) : give_up_(std::move(give_up)) {}

  // Blocks until there is an answer.
  absl::StatusOr<ShardResult> Wait();

  bool done();
  void Cancel();

  // The first answer stays, later ones are dropped.
  void Resolve(absl::StatusOr<ShardResult> answer);

 private:
  const std::function<void()> give_up_;
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<ShardResult> answer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cpshard
