// One ShardBatches stream without its transport: which frames are taken, which batches are under
// way, what is answered. docs/WIRE.md is the contract of the frames.
//
//   frames in -> receiving -> ready -> sharding (on a worker) -> answering -> frames out
//                    any of them -> refused: a status in place of the answer
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/exec/executor.h"
#include "proto/frames.h"
#include "proto/replies.h"
#include "server/counters.h"
#include "server/executors.h"
#include "server/stream/arriving_batch.h"
#include "server/stream/frame_stream.h"
#include "server/stream/memory_share.h"
#include "server/stream/outgoing_answer.h"

namespace cpshard {

// What all streams of a server share. Everything outlives the streams.
struct StreamContext {
  Limits limits;
  StreamLimits stream_limits;
  absl::Duration stall;      // what makes no progress for so long is given up
  int64_t max_sharding = 1;  // batches of one stream on workers at a time
  const Executors* executors = nullptr;
  BufferPool* pool = nullptr;
  MemoryShare* shares = nullptr;  // of the pool
  ServerCounters* counters = nullptr;
  // Runs work on another thread, or later on this one; never at once.
  std::function<void(std::function<void()>)> run_later;
};

class BatchStream final : public FrameStream, public std::enable_shared_from_this<BatchStream> {
 public:
  // See MakeFrameStream.
  static std::shared_ptr<BatchStream> Make(const StreamContext& context, std::string peer,
                                           std::function<void()> on_output);
  ~BatchStream() override;

  // Plans, lands, and shards small batches at once.
  void OnMessage(absl::Span<const Bytes> message, absl::Time input) override;
  void OnInputEnd() override;  // batches that are not complete are refused
  bool WantsInput() const override;
  std::optional<OutFrame> NextFrame(absl::Time now) override;
  absl::Time OutputDue() const override;
  // Also where the peer broke the rules so that nothing can be said under a batch's id.
  std::optional<absl::Status> Ended() const override;
  void Drain() override;
  void EndIfIdle(const absl::Status& status) override;
  void Expire(absl::Time input) override;
  void Abandon() override;
  int64_t batches() const override;  // not answered yet
  int64_t queued_bytes() const override;

 private:
  enum class Phase { kReceiving, kReady, kSharding, kAnswering };
  struct Entry {
    uint64_t id = 0;
    Phase phase = Phase::kReceiving;
    bool dead = false;        // refused or abandoned; who still works on it drops the result
    Credit charge;            // of the stream's limits
    int64_t reserved = 0;     // of the connection's share of memory
    int64_t answer = 0;       // in answer_bytes_
    absl::Time begun, moved;  // by the input's clock; `moved`: bytes came
    Executor* executor = nullptr;
    std::unique_ptr<ArrivingBatch> batch;
  };
  using EntryPtr = std::shared_ptr<Entry>;

  BatchStream(const StreamContext& context, std::string peer, std::function<void()> on_output);

  // Input.
  EntryPtr OnFrame(const BatchFrame& frame, absl::Time input);
  absl::Status Misplaced(const EntryPtr& entry, const BatchFrame& frame) const;
  EntryPtr Begin(const BatchFrame& frame, absl::Time input);
  EntryPtr Land(const EntryPtr& entry, const BatchFrame& frame, absl::Time input);
  // What the limits say of one batch more; takes its charge if they allow it.
  std::optional<BatchError> Charge(const EntryPtr& entry, int64_t bytes);
  std::optional<BatchError> Reserve(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishInput(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Sharding. Ready batches start as far as the room for answers allows: large ones on workers of
  // their own, and a small one that this thread, a worker too, may shard at once is returned.
  EntryPtr StartSharding(bool one_here) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Shard(EntryPtr entry, bool one_more_here);

  // Giving up. `more`: frames of the batch may be on their way; they are dropped.
  void Refuse(uint64_t id, BatchError error, bool more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<EntryPtr> Receiving() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  EntryPtr Find(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const StreamContext context_;
  const std::string peer_;
  const std::function<void()> on_output_;

  mutable absl::Mutex mu_;
  std::map<uint64_t, EntryPtr> entries_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> dropping_ ABSL_GUARDED_BY(mu_);  // refused, the last frame is still to come
  std::deque<EntryPtr> ready_ ABSL_GUARDED_BY(mu_);
  std::deque<OutgoingAnswer> outgoing_ ABSL_GUARDED_BY(mu_);
  Credit charged_ ABSL_GUARDED_BY(mu_);
  int64_t sharding_ ABSL_GUARDED_BY(mu_) = 0;
  // Memory of answers that are made or wait: what they may need, then what they took.
  int64_t answer_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time output_due_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool tell_draining_ ABSL_GUARDED_BY(mu_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);  // no more input; how the stream ends
};

}  // namespace cpshard
