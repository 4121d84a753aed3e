#include "server/unary_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/replies.h"
#include "proto/status.h"
#include "server/log.h"
#include "server/stream/frame_stream.h"
#include "server/to_peer.h"

namespace cpshard {

std::shared_ptr<UnaryCall> UnaryCall::Start(grpc::CallbackServerContext* call, absl::Duration stall,
                                            ServerCounters* counters, CallOwner owner,
                                            OnRequest on_request) {
  std::shared_ptr<UnaryCall> self(
      new UnaryCall(call, stall, counters, std::move(owner), std::move(on_request)));
  self->self_ = self;
  self->StartRead(&self->request_);
  return self;
}

UnaryCall::UnaryCall(grpc::CallbackServerContext* call, absl::Duration stall,
                     ServerCounters* counters, CallOwner owner, OnRequest on_request)
    : call_(call),
      stall_(stall),
      counters_(counters),
      owner_(std::move(owner)),
      peer_(call->peer()),
      begun_(absl::Now()),
      on_request_(std::move(on_request)) {}

void UnaryCall::OnReadDone(bool ok) {
  OnRequest on_request;
  {
    absl::MutexLock lock(&mu_);
    on_request = std::exchange(on_request_, nullptr);
  }
  if (!ok) return Refuse(absl::InvalidArgumentError("the call has no request"));
  if (answered()) return;
  grpc::ByteBuffer request;
  request.Swap(&request_);
  on_request(shared_from_this(), std::move(request));
}

void UnaryCall::Refuse(const absl::Status& error) {
  absl::MutexLock lock(&mu_);
  if (BeginAnswer()) Finish(ToGrpc(error));
}

void UnaryCall::Answer(const grpc::ByteBuffer& reply) {
  absl::MutexLock lock(&mu_);
  if (!BeginAnswer()) return;
  reply_ = reply;
  StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
}

bool UnaryCall::BeginAnswer() {
  if (answered_at_ != absl::InfiniteFuture()) return false;
  answered_at_ = absl::Now();
  return true;
}

bool UnaryCall::answered() const {
  absl::MutexLock lock(&mu_);
  return answered_at_ != absl::InfiniteFuture();
}

void UnaryCall::WhenGivenUp(std::function<void()> let_go) {
  {
    absl::MutexLock lock(&mu_);
    if (done_) return;
    if (!given_up_) {
      let_go_ = std::move(let_go);
      return;
    }
  }
  let_go();
}

void UnaryCall::OnCancel() {
  std::function<void()> let_go;
  {
    absl::MutexLock lock(&mu_);
    given_up_ = true;
    let_go = std::exchange(let_go_, nullptr);
  }
  Refuse(absl::CancelledError("the caller gave up"));
  if (let_go) let_go();
}

void UnaryCall::OnDone() {
  std::function<void()> let_go;  // what it holds may hold this call
  {
    absl::MutexLock lock(&mu_);
    done_ = true;
    let_go = std::exchange(let_go_, nullptr);
  }
  owner_.on_done(this);
  self_.reset();
}

void UnaryCall::Tick(absl::Time now) {
  bool late = false, cut_off = false;
  {
    absl::MutexLock lock(&mu_);
    if (done_) return;
    late = on_request_ != nullptr && now - begun_ >= TimeFor(kMaxMessageBytes, stall_);
    // As a stream's: the call first; its connection if gRPC does not let go of it then, for the
    // socket is full. Who gave up is not to blame.
    const int64_t bytes = reply_.Valid() ? static_cast<int64_t>(reply_.Length()) : 0;
    if (cut_off_at_ == absl::InfiniteFuture() && now - answered_at_ >= TimeFor(bytes, stall_)) {
      cut_off = !given_up_;
      cut_off_at_ = now;
      if (cut_off) {
        ++counters_->streams_stalled;
        call_->TryCancel();
      }
    }
    if (now - cut_off_at_ >= kCancelGrace) owner_.cut_connection(peer_);
  }
  if (late) Refuse(LateRequest(TimeFor(kMaxMessageBytes, stall_)));
  if (cut_off) {
    LogError("call cut off: the peer does not take its answer",
             {{"code", "RESOURCE_EXHAUSTED"},
              {"peer", owner_.describe_peer(peer_)},
              {"seconds", absl::StrCat(absl::ToInt64Seconds(stall_))}});
  }
}

void UnaryCall::Drain(bool) {
  {
    absl::MutexLock lock(&mu_);
    if (on_request_ == nullptr) return;
  }
  Refuse(ShuttingDown());
}

}  // namespace cpshard
