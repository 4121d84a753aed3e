// A batch on its way in. Its bytes land once, in one pooled buffer; plan and digest follow the
// arrival, so that a batch that cannot be sharded is refused as early as it can be known.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"
#include "core/batch/digest.h"
#include "core/exec/executor.h"
#include "proto/frames.h"

namespace cpshard {

// What has landed as a whole, with its plan for all ranks that were asked for.
struct ArrivedBatch {
  Batch batch;  // windows on one pooled buffer
  BatchSpec spec;
  std::vector<int64_t> ranks;
  std::shared_ptr<const ShardPlan> plan;
  int64_t bytes = 0;         // of the batch buffer
  int64_t plan_bytes = 0;    // of the plan, and of what it derives
  int64_t output_bytes = 0;  // at most
  uint64_t digest = 0;
};

// Not thread-safe: frames come one after the other.
class ArrivingBatch {
 public:
  // Plans, where the layout reads no values. Takes no memory of the size of the batch.
  // What the plan refuses; InvalidArgument: the shards or the layouts would be over
  // limits.max_batch_bytes, or their heads over what a frame holds.
  static absl::StatusOr<std::unique_ptr<ArrivingBatch>> Make(BatchBegin begin,
                                                             const Limits& limits);

  // Takes the batch buffer. Before the first Land. ResourceExhausted: the pool.
  absl::Status TakeMemory(BufferPool& pool);

  // One frame, the first included. InvalidArgument: frame_seq, offset or the body's size is not
  // what must come next; DataLoss: a frame is missing, or a checksum does not match; and what
  // planning refuses once the values it reads have landed.
  absl::Status Land(const BatchFrame& frame);

  // After the last frame. InvalidArgument: bytes are missing.
  absl::Status CheckComplete() const;

  // Precondition: CheckComplete passed. Shares the batch's memory; this object may go.
  ArrivedBatch Take();

  // The same, as the answer.
  absl::StatusOr<Answer> MakeAnswer(Executor& executor, BufferPool& pool);

  int64_t total_bytes() const { return begin_.total_bytes; }
  int64_t landed_bytes() const { return landed_; }
  // Of all shards, and layouts that lie beside them; before the plan taken to be as large as the
  // batch.
  int64_t output_bytes() const { return plan_ == nullptr ? begin_.total_bytes : output_bytes_; }
  // The batch, its plan and its answer at the same time.
  int64_t memory_bytes() const { return total_bytes() + plan_bytes_ + output_bytes(); }

 private:
  ArrivingBatch(BatchBegin begin, Sharder sharder, const Limits& limits);

  absl::Status CheckPlace(const BatchFrame& frame) const;
  absl::Status CheckCrc(const BatchFrame& frame) const;
  void CopyIn(const FrameBody& body);
  void FollowWithDigest();
  absl::Status PlanWhenPossible();
  absl::Status Plan();

  const BatchBegin begin_;
  const Sharder sharder_;
  const Limits limits_;
  const std::vector<std::string> needs_;
  int64_t needs_end_ = 0;  // the plan's values have landed when so many bytes have
  std::shared_ptr<const ShardPlan> plan_;
  int64_t output_bytes_ = 0;
  int64_t plan_bytes_ = 0;  // of the plan, and of what it derives

  Buffer buffer_;
  Batch batch_;  // windows on buffer_
  uint32_t next_seq_ = 0;
  int64_t landed_ = 0;
  int64_t last_body_at_ = 0;  // where the body before this frame's begins

  BatchDigest digest_;
  const std::vector<size_t> digest_order_;
  size_t digested_tensors_ = 0;
  int64_t digested_bytes_ = -1;  // of the tensor under way; -1: not begun
};

}  // namespace cpshard
