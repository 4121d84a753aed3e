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
#include "server/stream/arriving_batch.h"
#include "server/stream/memory_share.h"
#include "server/stream/outgoing_answer.h"

namespace cpshard {

// What all streams of a server share. Everything outlives the streams.
struct StreamContext {
  Limits limits;
  StreamLimits stream_limits;
  absl::Duration stall;      // what makes no progress for so long is given up
  int64_t max_sharding = 1;  // batches of one stream on workers at a time
  Executor* executor = nullptr;
  BufferPool* pool = nullptr;
  MemoryShare* shares = nullptr;  // of the pool
  ServerCounters* counters = nullptr;
  // Runs work on another thread, or later on this one; never at once.
  std::function<void(std::function<void()>)> run_later;
};

// Thread-safe, with two exceptions: OnMessage and OnInputEnd come one after the other, and so do
// calls of NextFrame.
//
// Two clocks come from outside. `input` stands still while the peer's frames are not read or wait
// to be landed: it measures what the peer lets pass. `now` is the ordinary one.
class BatchStream : public std::enable_shared_from_this<BatchStream> {
 public:
  // `peer` names the connection. `on_output` is called, without a lock held, when NextFrame or
  // Ended may have something new.
  static std::shared_ptr<BatchStream> Make(const StreamContext& context, std::string peer,
                                           std::function<void()> on_output);
  ~BatchStream();

  // A message from the peer. The spans are not used after the call. Plans, lands, and shards small
  // batches at once: to be called on a worker.
  void OnMessage(absl::Span<const Bytes> message, absl::Time input);

  // The peer sends no more: batches that are not complete are refused.
  void OnInputEnd();

  // False while so many answers wait to be sent that reading more would only add to them.
  bool WantsInput() const;

  // The next message to send, if there is one.
  std::optional<OutFrame> NextFrame(absl::Time now);

  // When the answer that is being sent should be through: at the slowest rate that is tolerated.
  absl::Time OutputDue() const;

  // The status that the stream ends with, once nothing is left to be sent: the peer has ended its
  // side, or broke the rules so that nothing can be said under a batch's id.
  std::optional<absl::Status> Ended() const;

  // From now on new batches are refused with UNAVAILABLE; the peer is told.
  void Drain();

  // Takes no more input if no batch is under way; the stream ends with `status`, after refusals
  // that are still to be sent.
  void EndIfIdle(const absl::Status& status);

  // Gives up batches that do not come: no byte for the stall time, or too slowly on the whole.
  void Expire(absl::Time input);

  // The peer is gone: everything is let go, nothing is answered any more.
  void Abandon();

  int64_t batches() const;       // not answered yet
  int64_t queued_bytes() const;  // of answers, not handed out yet

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
  static BatchError ErrorOf(const absl::Status& status);

  // Sharding. Ready batches start as far as the room for answers allows: large ones on workers, and
  // a small one that this thread may shard at once is returned.
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

// The slowest that a batch or an answer may travel as a whole, beside four times the stall time, in
// bytes a second.
inline constexpr int64_t kMinRate = int64_t{1} << 20;

}  // namespace cpshard
