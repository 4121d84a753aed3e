// What is behind a ShardStream: the ledger's clock, thread, connection and lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/batch_ledger.h"
#include "client/frame_encoder.h"
#include "client/incoming_answer.h"
#include "client/pending_batch.h"
#include "client/shard_stream.h"
#include "client/stream_call.h"
#include "client/stream_connection.h"
#include "core/batch/buffer.h"
#include "proto/frames.h"
#include "proto/replies.h"

namespace cpshard {

// Thread-safe. Under the lock nothing is done but what the ledger does: no copies, no calls into
// gRPC, no buffer is let go.
class ShardStream::Impl final : public StreamUser,
                                public std::enable_shared_from_this<ShardStream::Impl> {
 public:
  Impl(std::string address, const StreamOptions& options)
      : address_(std::move(address)),
        ledger_(address_, options, std::random_device()()),
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
  // What the keeper found out about the server, and the way to it.
  struct Greeted {
    ServerInfo server;
    std::shared_ptr<StreamConnection> connection;
  };

  // Changes the ledger, then does what follows from the change.
  template <typename F>
  void Update(F change);

  void Keep();
  absl::StatusOr<Greeted> Connect(absl::Duration patience);
  void TryToConnect(absl::Duration patience);

  std::optional<grpc::ByteBuffer> NextMessage() override;
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  absl::Status OnAnswer(ShardFrame frame);
  void OnEnd(const absl::Status& status) override;

  const std::string address_;
  BufferPool pool_;
  std::thread keeper_;

  absl::Mutex mutex_;
  BatchLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<StreamCall> call_ ABSL_GUARDED_BY(mutex_);  // until its OnEnd
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // When the keeper looks at the ledger next; in the past: it is about to.
  absl::Time keeper_wakes_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool keeper_called_ ABSL_GUARDED_BY(mutex_) = false;

  std::shared_ptr<StreamConnection> connection_;  // of the keeper: the last one, until the next
  IncomingAnswers answers_;                       // of the call's reads
  FrameEncoder encoder_;                          // of the call's writes
};

}  // namespace cpshard
