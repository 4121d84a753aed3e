// What is behind a Loader: the ledger's lock and connection, and the thread of the sources.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/frame_cursor.h"
#include "client/frame_encoder.h"
#include "client/session/loader.h"
#include "client/session/loader_ledger.h"
#include "client/session/session_stream.h"
#include "proto/session_codec.h"

namespace cpshard {

// Thread-safe.
class Loader::Impl final : public SessionStream {
 public:
  Impl(Address address, std::unique_ptr<WakeupFd> wakeup, const LoaderOptions& options,
       LoaderHello hello, std::map<std::string, StepSource*> sources);

  void StartThreads();
  void Join();  // after End: waits for a Make that is under way
  absl::Status Wait();
  LoaderStats stats() const;

 private:
  // A batch that is being written.
  struct Writing {
    uint64_t wire_id = 0;
    LoaderLedger::Push push;
    FrameCursor cursor;
  };
  // What goes into one message.
  struct Outgoing {
    std::string header;  // of a message without a body
    bool is_hello = false;
    std::optional<FrameToSend> frame;
    std::optional<PushHead> push;  // of the frame
  };

  // --- the sources' thread

  void MakeSteps();
  std::optional<LoaderLedger::Work> AwaitWork();
  absl::Status Make(const LoaderLedger::Work& work);

  // --- the connection

  bool Postponed() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Owed() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TryAgain() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<absl::Status> Outcome() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Connected() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Disconnected() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnGreeted(const Greeted& greeted) override;
  void OnTick() override;
  void OnLost(const absl::Status& why) override;

  std::optional<grpc::ByteBuffer> NextMessage() override;
  std::optional<Outgoing> TakeOutgoing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Outgoing CutFrame() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void OnNotice(const LoaderNotice& notice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAck(const AckMessage& ack) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LoaderOptions options_;
  const std::map<std::string, StepSource*> sources_;
  std::thread source_thread_;
  int64_t chunk_bytes_ = 0;        // of the keeper, before a call begins
  FrameEncoder encoder_;           // of the call's writes
  const char* written_ = nullptr;  // likewise: the failpoint behind the last message

  LoaderLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> hello_ ABSL_GUARDED_BY(mutex_);  // to be sent
  std::optional<Writing> writing_ ABSL_GUARDED_BY(mutex_);
  std::optional<Writing> cut_off_ ABSL_GUARDED_BY(mutex_);  // to be let go of without the lock
  bool wrote_body_ ABSL_GUARDED_BY(mutex_) = false;         // with the last message
  uint64_t next_wire_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t unacknowledged_ ABSL_GUARDED_BY(mutex_) = 0;  // batches that an answer is due for
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;       // on_drain is to be called

  // Of each data stream the last batch that was pushed: pass, step, microbatch.
  std::map<std::string, std::tuple<int64_t, int64_t, int64_t>> pushed_ ABSL_GUARDED_BY(mutex_);
  LoaderStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cpshard
