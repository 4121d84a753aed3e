// The gRPC side of a ShardBatches stream: one read and one write outstanding, messages landed one
// after the other on workers, everything decided by BatchStream.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/stream/batch_stream.h"

namespace cpshard {

class StreamReactor;

// Who watches over the streams of a server. Everything outlives the streams.
struct StreamOwner {
  // Ends the connection of a call, given its peer(): gRPC cannot let go of it otherwise. That name
  // is to be had only as a call begins.
  std::function<void(const std::string& peer)> cut_connection;
  // Who that peer is, for the log.
  std::function<std::string(const std::string& peer)> describe_peer;
  // The reactor is done with; nothing of it is used any more.
  std::function<void(StreamReactor*)> on_done;
};

// Thread-safe. Lives until gRPC is done with the call and no worker has a message of it.
class StreamReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  // Begins to read. The reactor owns itself until OnDone.
  static std::shared_ptr<StreamReactor> Start(grpc::CallbackServerContext* call,
                                              const StreamContext& context, StreamOwner owner);

  // Called several times a second: gives up what makes no progress.
  void Tick(absl::Time now);

  // New batches are refused; once no batch is under way the stream ends after a moment, or at once.
  void Drain(bool at_once);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  StreamReactor(grpc::CallbackServerContext* call, const StreamContext& context, StreamOwner owner);

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
  const StreamOwner owner_;
  const std::string peer_;
  std::shared_ptr<BatchStream> stream_;
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

}  // namespace cpshard
