#include "client/pending_batch.h"

#include <utility>

namespace cpshard {

absl::StatusOr<ShardResult> PendingBatch::Wait() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&done_));
  return answer_;
}

bool PendingBatch::done() {
  absl::MutexLock lock(&mutex_);
  return done_;
}

void PendingBatch::Cancel() {
  if (!done() && give_up_) give_up_();
}

void PendingBatch::Resolve(absl::StatusOr<ShardResult> answer) {
  absl::MutexLock lock(&mutex_);
  if (done_) return;
  answer_ = std::move(answer);
  done_ = true;
}

}  // namespace cpshard
