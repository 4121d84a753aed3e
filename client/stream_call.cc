#include "client/stream_call.h"

#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "proto/status.h"

namespace cpshard {

StreamCall::StreamCall(const std::string& method, std::shared_ptr<StreamConnection> connection,
                       std::shared_ptr<StreamUser> user)
    : user_(std::move(user)),
      context_(std::make_unique<grpc::ClientContext>()),
      connection_(std::move(connection)) {
  grpc::GenericStub(connection_->channel())
      .PrepareBidiStreamingCall(context_.get(), method, {}, this);
  AddHold();  // for writes that begin outside of the callbacks
  StartRead(&read_);
}

std::shared_ptr<StreamCall> StreamCall::Make(const std::string& method,
                                             std::shared_ptr<StreamConnection> connection,
                                             std::shared_ptr<StreamUser> user) {
  const std::shared_ptr<StreamCall> call(
      new StreamCall(method, std::move(connection), std::move(user)));
  call->self_ = call;
  return call;
}

void StreamCall::Start() { StartCall(); }

void StreamCall::Wake() {
  {
    absl::MutexLock lock(&mutex_);
    woken_ = true;
    if (writing_ || failed_ || ended_) return;
    writing_ = true;
  }
  WriteOn();
}

void StreamCall::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (context_ == nullptr) return;
  context_->TryCancel();
  connection_->Cut();
}

// Precondition: this thread is the one that writes.
void StreamCall::WriteOn() {
  do {
    {
      absl::MutexLock lock(&mutex_);
      woken_ = false;
    }
    if (std::optional<grpc::ByteBuffer> message = user_->NextMessage()) {
      written_.Swap(&*message);
      StartWrite(&written_);
      return;
    }
  } while (!StopWriting());
}

// False: woken since the last look.
bool StreamCall::StopWriting() {
  bool ended = false;
  {
    absl::MutexLock lock(&mutex_);
    if (woken_ && !failed_ && !ended_) return false;
    writing_ = false;
    ended = ended_;
  }
  if (ended) RemoveHold();
  return true;
}

void StreamCall::OnWriteDone(bool ok) {
  written_.Clear();  // gRPC keeps what it still needs
  if (ok) {
    WriteOn();
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    failed_ = true;  // the call is over; its status comes when all was read
  }
  StopWriting();
}

void StreamCall::OnReadDone(bool ok) {
  if (ok) {
    broken_ = user_->OnMessage(read_);
    read_.Clear();
    if (broken_.ok()) {
      StartRead(&read_);
      return;
    }
    Cancel();
  }
  bool writing = false;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    writing = writing_;
  }
  if (!writing) RemoveHold();
}

void StreamCall::OnDone(const grpc::Status& status) {
  const std::shared_ptr<StreamCall> self = std::move(self_);
  std::unique_ptr<grpc::ClientContext> context;
  {
    absl::MutexLock lock(&mutex_);
    context = std::move(context_);
    connection_.reset();
  }
  context.reset();  // it holds the slices of a write that was cut off, and the channel
  const std::shared_ptr<StreamUser> user = std::move(user_);
  absl::Status end = broken_.ok() ? FromGrpc(status) : broken_;
  if (end.ok()) end = absl::UnavailableError("the server ended the stream");
  user->OnEnd(end);
}

}  // namespace cpshard
