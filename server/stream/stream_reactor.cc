#include "server/stream/stream_reactor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/slices.h"
#include "proto/status.h"
#include "server/log.h"

namespace cpshard {
namespace {

// Read ahead: one message is landed while the next one comes.
constexpr size_t kMaxInbox = 2;
constexpr size_t kLandOnWorker = size_t{1} << 20;
// What a cancelled call gets to let go of its buffers before its connection is cut.
constexpr absl::Duration kCancelGrace = absl::Seconds(2);
// How long a draining stream goes on refusing before it ends.
constexpr absl::Duration kDrainLinger = absl::Milliseconds(500);

absl::Status GoingDown() {
  return absl::UnavailableError("the server is shutting down; try another");
}

}  // namespace

std::shared_ptr<StreamReactor> StreamReactor::Start(grpc::CallbackServerContext* call,
                                                    const StreamContext& context,
                                                    StreamOwner owner) {
  std::shared_ptr<StreamReactor> reactor(new StreamReactor(call, context, std::move(owner)));
  reactor->self_ = reactor;
  const std::weak_ptr<StreamReactor> weak = reactor;
  reactor->stream_ = BatchStream::Make(context, [weak] {
    if (const auto alive = weak.lock()) alive->Pump();
  });
  absl::MutexLock lock(&reactor->mu_);
  reactor->ReadMore();
  return reactor;
}

StreamReactor::StreamReactor(grpc::CallbackServerContext* call, const StreamContext& context,
                             StreamOwner owner)
    : call_(call),
      context_(context),
      owner_(std::move(owner)),
      peer_(call->peer()),
      reading_since_(absl::Now()) {}

void StreamReactor::OnReadDone(bool ok) {
  bool claimed;
  {
    absl::MutexLock lock(&mu_);
    reading_ = false;
    if (ok) {
      inbox_.push_back(std::move(in_));
      in_.Clear();
    } else {
      input_ended_ = true;
    }
    ReadMore();
    claimed = ClaimInbox();
  }
  if (claimed) LandMessages(/*on_worker=*/false);
}

bool StreamReactor::ClaimInbox() {
  if (landing_ || finished_) return false;
  if (inbox_.empty() && (!input_ended_ || end_landed_)) return false;
  return landing_ = true;
}

void StreamReactor::LandMessages(bool on_worker) {
  while (true) {
    grpc::ByteBuffer message;
    {
      absl::MutexLock lock(&mu_);
      landing_ = false;
      if (!ClaimInbox()) return;
      if (!on_worker && !inbox_.empty() && inbox_.front().Length() >= kLandOnWorker) {
        context_.run_later([self = shared_from_this()] { self->LandMessages(true); });
        return;
      }
      if (inbox_.empty()) {
        end_landed_ = true;
      } else {
        message.Swap(&inbox_.front());
        inbox_.pop_front();
        ReadMore();
      }
    }
    if (message.Valid()) {
      const MessageSlices slices(message);
      message.Clear();
      stream_->OnMessage(slices.spans(), absl::Now());
    } else {
      stream_->OnInputEnd();
    }
  }
}

void StreamReactor::ReadMore() {
  if (reading_ || input_ended_ || finished_) return;
  if (inbox_.size() >= kMaxInbox || !stream_->WantsInput()) {
    paused_ = true;
    return;
  }
  if (std::exchange(paused_, false)) reading_since_ = absl::Now();
  reading_ = true;
  StartRead(&in_);
}

void StreamReactor::Pump() {
  absl::MutexLock lock(&mu_);
  WriteMore();
  ReadMore();
}

void StreamReactor::WriteMore() {
  if (writing_ || finished_) return;
  if (std::optional<OutFrame> frame = stream_->NextFrame()) {
    out_ = ToMessage(frame->header, frame->body);
    writing_ = true;
    sending_since_ = absl::Now();
    StartWrite(&out_);
  } else if (const std::optional<absl::Status> end = stream_->Ended()) {
    finished_ = true;
    sending_since_ = absl::Now();
    Finish(ToGrpc(*end));
  }
}

void StreamReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  writing_ = false;
  out_.Clear();
  if (!ok) GiveUp(absl::Now());
  WriteMore();
  ReadMore();
}

void StreamReactor::OnCancel() {
  absl::MutexLock lock(&mu_);
  GiveUp(absl::Now());
  WriteMore();  // finishes, unless a write is outstanding: then that one does
}

void StreamReactor::GiveUp(absl::Time now) {
  cancelled_at_ = std::min(cancelled_at_, now);
  stream_->Abandon();
  inbox_.clear();
}

void StreamReactor::OnDone() {
  owner_.on_done(this);
  self_.reset();  // a worker may still hold the reactor
}

void StreamReactor::Drain(bool at_once) {
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  stream_->Drain();
  if (at_once) stream_->EndIfIdle(GoingDown());
}

void StreamReactor::Tick(absl::Time now) {
  absl::Time reading_since = absl::InfiniteFuture();  // while paused nothing can come
  bool end = false;
  {
    absl::MutexLock lock(&mu_);
    const bool sending = writing_ || finished_;  // the end has to get through as well
    const absl::Duration stuck = sending ? now - sending_since_ : absl::ZeroDuration();
    if (stuck >= context_.stall && !stalled_ && cancelled_at_ == absl::InfiniteFuture()) {
      CutOff(stuck);
      cancelled_at_ = now;
    }
    // Cancelled, and still gRPC has not let go: the socket is full and nobody reads it.
    if (sending && now - cancelled_at_ >= kCancelGrace) owner_.cut_connection(peer_);
    if (!paused_ && inbox_.empty()) reading_since = reading_since_;
    end = draining_ && IsIdle(now);
  }
  stream_->Expire(now, reading_since);
  if (end) stream_->EndIfIdle(GoingDown());
}

void StreamReactor::CutOff(absl::Duration stuck) {
  stalled_ = true;
  ++context_.counters->streams_stalled;
  LogError("stream cut off: the peer does not read",
           {{"code", "RESOURCE_EXHAUSTED"},
            {"peer", owner_.describe_peer(peer_)},
            {"seconds", absl::StrCat(absl::ToInt64Seconds(stuck))},
            {"bytes", absl::StrCat(out_.Length() + stream_->queued_bytes())},
            {"batches", absl::StrCat(stream_->batches())}});
  call_->TryCancel();
}

// Whether no batch has been under way for a moment; those that are refused do not count.
bool StreamReactor::IsIdle(absl::Time now) {
  idle_since_ = stream_->batches() == 0 ? std::min(idle_since_, now) : absl::InfiniteFuture();
  return now - idle_since_ >= kDrainLinger;
}

}  // namespace cpshard
