// The gRPC side of a call that carries frames: one read and one write outstanding, messages landed
// one after the other on workers, everything decided by its FrameStream.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/stream/batch_stream.h"
#include "server/stream/frame_stream.h"
#include "server/stream/watched_call.h"

namespace cpshard {

// Thread-safe. Lives until gRPC is done with the call and no worker has a message of it.
class StreamReactor : public WatchedCall, public std::enable_shared_from_this<StreamReactor> {
 public:
  void Tick(absl::Time now) override;

  // New batches are refused; once no batch is under way the stream ends after a moment, or at once.
  void Drain(bool at_once) override;

 protected:
  StreamReactor(grpc::CallbackServerContext* call, const StreamContext& context, CallOwner owner);

  // Begins to read; the reactor owns itself until Done.
  void Begin(const MakeFrameStream& make);

  // What gRPC reports.
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Cancelled();
  void Done();

 private:
  // What gRPC is to do.
  virtual void Read(grpc::ByteBuffer* message) = 0;
  virtual void Write(const grpc::ByteBuffer* message) = 0;
  virtual void End(const grpc::Status& status) = 0;

  void Pump();
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands the next message to a worker, unless one has this stream's last one.
  void LandMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LandOne();
  void GiveUp(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CutOff(absl::Duration stuck, int64_t bytes);
  // Moves the input's clock to `now`; it runs only while the server waits for the peer.
  void Elapse(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc::CallbackServerContext* const call_;
  const StreamContext& context_;
  const CallOwner owner_;
  const std::string peer_;
  std::shared_ptr<FrameStream> stream_;
  std::shared_ptr<StreamReactor> self_;

  absl::Mutex mu_;
  grpc::ByteBuffer in_, out_;                                // of the outstanding read and write
  std::deque<grpc::ByteBuffer> inbox_ ABSL_GUARDED_BY(mu_);  // read, not landed yet
  bool landing_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool input_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool end_landed_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;  // gRPC is: the call must not be touched
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time input_ ABSL_GUARDED_BY(mu_);          // the input's clock, which was right ...
  absl::Time input_set_ ABSL_GUARDED_BY(mu_);      // ... at this time
  absl::Time sending_since_ ABSL_GUARDED_BY(mu_);  // the outstanding write, or the end
  absl::Time idle_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time cancelled_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

// Frames both ways.
class TwoWayReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                            public StreamReactor {
 public:
  static std::shared_ptr<TwoWayReactor> Start(grpc::CallbackServerContext* call,
                                              const StreamContext& context, CallOwner owner,
                                              const MakeFrameStream& make);
  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  using StreamReactor::StreamReactor;
  void Read(grpc::ByteBuffer* message) override { StartRead(message); }
  void Write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void End(const grpc::Status& status) override { Finish(status); }
};

}  // namespace cpshard
