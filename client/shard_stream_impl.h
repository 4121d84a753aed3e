// What is behind a ShardStream: the ledger's clock, thread, connection and lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/address.h"
#include "client/batch_ledger.h"
#include "client/frame_encoder.h"
#include "client/incoming_answer.h"
#include "client/pending_batch.h"
#include "client/shard_stream.h"
#include "client/stream_call.h"
#include "client/stream_connection.h"
#include "client/stream_greeting.h"
#include "client/wakeup_fd.h"
#include "core/batch/buffer.h"
#include "proto/frames.h"

namespace cpshard {

// Thread-safe. Under the lock nothing is done but what the ledger does: no copies, no calls into
// gRPC, no buffer is let go.
class ShardStream::Impl final : public StreamUser,
                                public std::enable_shared_from_this<ShardStream::Impl> {
 public:
  Impl(Address address, const StreamOptions& options, std::unique_ptr<WakeupFd> wakeup)
      : address_(std::move(address)),
        pool_({.max_bytes = static_cast<size_t>(options.max_answer_bytes),
               .max_idle_bytes = static_cast<size_t>(options.max_idle_bytes)}),
        wakeup_(std::move(wakeup)),
        ledger_(address_.text, options, std::random_device()()),
        answers_(&pool_),
        encoder_(options.checksums) {}

  void Start() {
    keeper_ = std::thread([this] { Keep(); });
  }
  void Close();

  std::shared_ptr<PendingBatch> Submit(Batch batch, const Options& options,
                                       std::optional<int64_t> cp_size, std::vector<int64_t> ranks);
  StreamStats stats();

 private:
  // Changes the ledger, then does what follows from the change.
  template <typename F>
  void Update(F change);

  // The keeper expires batches and makes connections; it sleeps in Rest alone, so that it does the
  // one while it waits for the other.
  void Keep();
  bool WantsConnection();
  bool Rest(int fd, absl::Duration patience);
  void MakeConnection();

  std::optional<grpc::ByteBuffer> NextMessage() override;
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  absl::Status OnAnswer(ShardFrame frame);
  void OnEnd(const absl::Status& status) override;

  const Address address_;
  BufferPool pool_;
  const std::unique_ptr<WakeupFd> wakeup_;  // of the keeper
  std::thread keeper_;

  absl::Mutex mutex_;
  BatchLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<StreamCall> call_ ABSL_GUARDED_BY(mutex_);  // until its OnEnd
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // When the keeper looks at the ledger next; in the past: it is about to.
  absl::Time keeper_wakes_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();

  std::shared_ptr<StreamConnection> connection_;  // of the keeper: the last one, until the next
  IncomingAnswers answers_;                       // of the call's reads
  FrameEncoder encoder_;                          // of the call's writes
};

}  // namespace cpshard
