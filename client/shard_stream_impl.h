// What is behind a ShardStream: the ledger's lock, clock and connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/address.h"
#include "client/batch_ledger.h"
#include "client/frame_encoder.h"
#include "client/incoming_answer.h"
#include "client/kept_stream.h"
#include "client/pending_batch.h"
#include "client/shard_stream.h"
#include "client/stream_greeting.h"
#include "client/wakeup_fd.h"
#include "core/batch/buffer.h"
#include "proto/frames.h"

namespace cpshard {

// Thread-safe. Under the lock nothing is done but what the ledger does: no copies, no calls into
// gRPC, no buffer is let go.
class ShardStream::Impl final : public KeptStream {
 public:
  Impl(Address address, const StreamOptions& options, std::unique_ptr<WakeupFd> wakeup);

  void CloseAll();

  std::shared_ptr<PendingBatch> Submit(Batch batch, const Options& options,
                                       std::optional<int64_t> cp_size, std::vector<int64_t> ranks);
  StreamStats stats();

 private:
  // Changes the ledger, then does what follows from the change.
  template <typename F>
  void Update(F change);

  absl::Time Tick(absl::Time now) override;
  bool WantsConnection(absl::Time now) override;
  void OnConnecting() override;
  absl::Status OnGreeted(const Greeted& greeted) override;
  void OnUp() override;
  void OnDown(const absl::Status& status, Stage stage) override;

  std::optional<grpc::ByteBuffer> NextMessage() override;
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  absl::Status OnAnswer(ShardFrame frame);

  BufferPool pool_;
  const ExecutorKind executor_;

  absl::Mutex mutex_;
  BatchLedger ledger_ ABSL_GUARDED_BY(mutex_);

  ServerInfo server_;        // of the keeper
  IncomingAnswers answers_;  // of the call's reads
  FrameEncoder encoder_;     // of the call's writes
};

}  // namespace cpshard
