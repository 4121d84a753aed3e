// An answer as it arrives: its frames are held to each other, their bodies land in one pooled
// buffer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/batch/buffer.h"
#include "core/exec/shard.h"
#include "proto/frames.h"

namespace cpshard {

// Not thread-safe.
class IncomingAnswer {
 public:
  // `max_bytes`: an answer that says it is larger is refused. `pool` must outlive the object.
  IncomingAnswer(int64_t max_bytes, BufferPool* pool) : max_bytes_(max_bytes), pool_(pool) {}

  // Copies the body of a frame (not one with an error) to its place; nothing refers to the message
  // any more. Internal, with the numbers: a frame that cannot come here. ResourceExhausted: the
  // pool. After an error the object is of no use.
  absl::Status Take(ShardFrame frame);

  // All frames are there.
  bool complete() const { return complete_; }

  // The shards as windows on the buffer. Precondition: complete(). Internal: heads that do not fit
  // it.
  absl::StatusOr<ShardResult> Finish();

 private:
  absl::Status Begin(const ShardFrame& frame);
  absl::Status CheckPlace(const ShardFrame& frame) const;

  const int64_t max_bytes_;
  BufferPool* const pool_;
  AnswerBegin begin_;
  Buffer buffer_;
  std::vector<ShardFrame> heads_;  // the frames with the begin or with shards, without their bodies
  int64_t num_heads_ = 0;
  int64_t received_ = 0;  // bytes
  uint32_t next_seq_ = 0;
  bool complete_ = false;
};

// The answers of one stream, several of which may arrive at a time. Not thread-safe.
class IncomingAnswers {
 public:
  // `pool` must outlive the object.
  explicit IncomingAnswers(BufferPool* pool) : pool_(pool) {}

  void SetBound(int64_t max_bytes) { max_bytes_ = max_bytes; }  // of an answer

  // The shards, once the answer is complete. After an error, as those of IncomingAnswer, it is
  // dropped.
  absl::StatusOr<std::optional<ShardResult>> Take(ShardFrame frame);

  void Drop(uint64_t id) { answers_.erase(id); }
  void DropAll() { answers_.clear(); }

 private:
  BufferPool* const pool_;
  int64_t max_bytes_ = 0;
  std::map<uint64_t, IncomingAnswer> answers_;
};

}  // namespace cpshard
