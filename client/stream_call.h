// One stream both ways as gRPC wants it: one read is always posted, one write at a time, holds and
// cancels in the right order. What is read and written is its user's business.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/stream_connection.h"

namespace cpshard {

// What a call asks of its user, on threads of gRPC (NextMessage also on that of Wake). Reads and
// writes run at the same time; there are never two reads, nor two writes.
class StreamUser {
 public:
  virtual ~StreamUser() = default;

  // What to write next; nothing: the call asks again after Wake.
  virtual std::optional<grpc::ByteBuffer> NextMessage() = 0;

  // Not OK: the call is cancelled, and ends with this status.
  virtual absl::Status OnMessage(const grpc::ByteBuffer& message) = 0;

  // The last of all. Never OK: Unavailable where the server ended the stream with OK.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// Thread-safe. Keeps itself and its user alive until the call has ended.
class StreamCall final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `method`: "/package.Service/Method".
  // A call that was made must be started, even if it is cancelled before: it is never freed
  // otherwise. The caller keeps the connection until OnEnd, and longer: the last channel of a
  // process waits for gRPC's threads, so it must not go on one of them.
  static std::shared_ptr<StreamCall> Make(const std::string& method,
                                          std::shared_ptr<StreamConnection> connection,
                                          std::shared_ptr<StreamUser> user);
  void Start();  // once

  // There may be something to write. Harmless at any time.
  void Wake();

  // Ends the call and its connection, whatever the peer does. Harmless at any time.
  void Cancel();

 private:
  StreamCall(const std::string& method, std::shared_ptr<StreamConnection> connection,
             std::shared_ptr<StreamUser> user);

  void WriteOn();
  bool StopWriting();
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  std::shared_ptr<StreamUser> user_;  // until OnDone
  std::shared_ptr<StreamCall> self_;  // until OnDone

  grpc::ByteBuffer read_;     // of the reads
  grpc::ByteBuffer written_;  // of the one who writes
  absl::Status broken_;       // of the reads

  // A thread writes from the moment that it finds `writing_` false and sets it, until the write is
  // done and there is no next message. The hold goes when reading has ended and nobody writes:
  // until then gRPC must not finish the call.
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;   // since the writer last looked
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more can be written
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;   // nothing more to read
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  std::shared_ptr<StreamConnection> connection_ ABSL_GUARDED_BY(mutex_);  // until OnDone
};

}  // namespace cpshard
