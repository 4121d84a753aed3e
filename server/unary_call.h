// A call of one request and one answer. Those that gRPC calls unary it shows only with a request
// that is there, and parsed; so one of which half is sent could not be given up, and one that costs
// too much was parsed before it could be refused. The server takes them as calls of messages both
// ways, which are the same on the wire.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/counters.h"
#include "server/stream/watched_call.h"

namespace cpshard {

// Thread-safe. Lives until gRPC is done with the call and nobody is about to answer it.
class UnaryCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                        public WatchedCall,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  // Given the request, on a thread of gRPC; is to have the call answered, sooner or later.
  using OnRequest = std::function<void(const std::shared_ptr<UnaryCall>&, grpc::ByteBuffer)>;

  // `stall`: the request may take to come whole, and the answer to be taken, what a batch of that
  // size may (TimeFor; of a request that of the largest message). A request that is late ends with
  // DEADLINE_EXCEEDED; a peer that does not take its answer is cut off. `counters` outlive the
  // call.
  static std::shared_ptr<UnaryCall> Start(grpc::CallbackServerContext* call, absl::Duration stall,
                                          ServerCounters* counters, CallOwner owner,
                                          OnRequest on_request);

  // The first answer counts. An error ...
  void Refuse(const absl::Status& error);
  // ... or a serialised reply.
  void Answer(const grpc::ByteBuffer& reply);

  // `let_go` is called, on some thread, if the peer gives up before gRPC is done with the call.
  void WhenGivenUp(std::function<void()> let_go);

  bool answered() const;  // the peer may have given up
  const std::string& peer() const { return peer_; }

  void Tick(absl::Time now) override;
  void Drain(bool at_once) override;  // of a call whose request is not there yet

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  UnaryCall(grpc::CallbackServerContext* call, absl::Duration stall, ServerCounters* counters,
            CallOwner owner, OnRequest on_request);

  // Whether the answer is the caller's to give.
  bool BeginAnswer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc::CallbackServerContext* const call_;
  const absl::Duration stall_;
  ServerCounters* const counters_;
  const CallOwner owner_;
  const std::string peer_;
  const absl::Time begun_;
  std::shared_ptr<UnaryCall> self_;

  grpc::ByteBuffer request_, reply_;  // of the read and the write
  mutable absl::Mutex mu_;
  OnRequest on_request_ ABSL_GUARDED_BY(mu_);  // null: called
  std::function<void()> let_go_ ABSL_GUARDED_BY(mu_);
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;  // gRPC is: the call must not be touched
  absl::Time answered_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time cut_off_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

}  // namespace cpshard
