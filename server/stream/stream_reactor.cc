#include "server/stream/stream_reactor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/slices.h"
#include "proto/status.h"
#include "server/log.h"
#include "server/to_peer.h"

namespace cpshard {
namespace {

// Read ahead: one message is landed while the next one comes.
constexpr size_t kMaxInbox = 2;
// How long a draining stream goes on refusing before it ends.
constexpr absl::Duration kDrainLinger = absl::Milliseconds(500);

}  // namespace

std::shared_ptr<TwoWayReactor> TwoWayReactor::Start(grpc::CallbackServerContext* call,
                                                    const StreamContext& context, CallOwner owner,
                                                    const MakeFrameStream& make) {
  std::shared_ptr<TwoWayReactor> reactor(new TwoWayReactor(call, context, std::move(owner)));
  reactor->Begin(make);
  return reactor;
}

StreamReactor::StreamReactor(grpc::CallbackServerContext* call, const StreamContext& context,
                             CallOwner owner)
    : call_(call),
      context_(context),
      owner_(std::move(owner)),
      peer_(call->peer()),
      input_(absl::Now()),
      input_set_(input_) {}

void StreamReactor::Begin(const MakeFrameStream& make) {
  self_ = shared_from_this();
  stream_ = make(peer_, [weak = weak_from_this()] {
    if (const auto alive = weak.lock()) alive->Pump();
  });
  absl::MutexLock lock(&mu_);
  ReadMore();
}

// --- input

void StreamReactor::ReadDone(bool ok) {
  absl::MutexLock lock(&mu_);
  Elapse(absl::Now());
  reading_ = false;
  if (ok) {
    inbox_.push_back(std::move(in_));
    in_.Clear();
  } else {
    input_ended_ = true;
  }
  ReadMore();
  LandMore();
}

void StreamReactor::ReadMore() {
  if (reading_ || input_ended_ || finished_) return;
  if (inbox_.size() >= kMaxInbox || !stream_->WantsInput()) return;
  Elapse(absl::Now());
  reading_ = true;
  Read(&in_);
}

// One message a turn, so that the workers serve all streams in turn.
void StreamReactor::LandMore() {
  if (landing_ || finished_) return;
  if (inbox_.empty() && (!input_ended_ || end_landed_)) return;
  landing_ = true;
  context_.run_later([self = shared_from_this()] { self->LandOne(); });
}

void StreamReactor::LandOne() {
  grpc::ByteBuffer message;
  absl::Time input;
  {
    absl::MutexLock lock(&mu_);
    input = input_;
    if (!inbox_.empty()) {
      message.Swap(&inbox_.front());
      inbox_.pop_front();
      ReadMore();
    } else {
      end_landed_ = true;
    }
  }
  if (message.Valid()) {
    const MessageSlices slices(std::move(message));
    stream_->OnMessage(slices.spans(), input);
  } else {
    stream_->OnInputEnd();
  }
  absl::MutexLock lock(&mu_);
  Elapse(absl::Now());
  landing_ = false;
  LandMore();
}

void StreamReactor::Elapse(absl::Time now) {
  const bool waits_for_peer = reading_ && inbox_.empty() && !landing_;
  if (waits_for_peer) input_ += std::max(absl::ZeroDuration(), now - input_set_);
  input_set_ = now;
}

// --- output

void StreamReactor::Pump() {
  absl::MutexLock lock(&mu_);
  WriteMore();
  ReadMore();
}

void StreamReactor::WriteMore() {
  if (writing_ || finished_) return;
  const absl::Time now = absl::Now();
  if (std::optional<OutFrame> frame = stream_->NextFrame(now)) {
    out_ = ToMessage(frame->header, frame->body);
    writing_ = true;
    sending_since_ = now;
    Write(&out_);
  } else if (const std::optional<absl::Status> end = stream_->Ended()) {
    finished_ = true;
    sending_since_ = now;
    End(ToGrpc(*end));
  }
}

void StreamReactor::WriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  writing_ = false;
  out_.Clear();
  if (!ok) GiveUp(absl::Now());
  WriteMore();
  ReadMore();
}

// --- the end

void StreamReactor::Cancelled() {
  absl::MutexLock lock(&mu_);
  GiveUp(absl::Now());
  WriteMore();  // finishes, unless a write is outstanding: then that one does
}

void StreamReactor::GiveUp(absl::Time now) {
  cancelled_at_ = std::min(cancelled_at_, now);
  stream_->Abandon();
  inbox_.clear();
}

void StreamReactor::Done() {
  {
    absl::MutexLock lock(&mu_);
    done_ = true;
  }
  owner_.on_done(this);
  self_.reset();  // a worker may still hold the reactor
}

void StreamReactor::Drain(bool at_once) {
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  stream_->Drain();
  if (at_once) stream_->EndIfIdle(ShuttingDown());
}

void StreamReactor::Tick(absl::Time now) {
  absl::Time input;
  absl::Duration stuck = absl::ZeroDuration();
  int64_t bytes = 0;
  bool cut_off = false, end = false;
  {
    absl::MutexLock lock(&mu_);
    if (done_) return;
    Elapse(now);
    input = input_;
    const bool sending = writing_ || finished_;  // the end has to get through as well
    if (sending) stuck = now - sending_since_;
    if (cancelled_at_ == absl::InfiniteFuture() && sending &&
        (stuck >= context_.stall || now >= stream_->OutputDue())) {
      cut_off = stalled_ = true;
      cancelled_at_ = now;
      bytes = static_cast<int64_t>(out_.Length());
      ++context_.counters->streams_stalled;
      call_->TryCancel();
    }
    // Cancelled, and still gRPC has not let go: the socket is full. One that the peer itself has
    // cancelled may just be slow.
    const absl::Duration grace = stalled_ ? kCancelGrace : context_.stall;
    if (sending && now - cancelled_at_ >= grace) owner_.cut_connection(peer_);
    end = draining_ && IsIdle(now);
  }
  if (cut_off) CutOff(stuck, bytes);
  stream_->Expire(input);
  if (end) stream_->EndIfIdle(ShuttingDown());
}

void StreamReactor::CutOff(absl::Duration stuck, int64_t bytes) {
  LogError("stream cut off: the peer does not read, or too slowly",
           {{"code", "RESOURCE_EXHAUSTED"},
            {"peer", owner_.describe_peer(peer_)},
            {"seconds", absl::StrCat(absl::ToInt64Seconds(stuck))},
            {"bytes", absl::StrCat(bytes + stream_->queued_bytes())},
            {"batches", absl::StrCat(stream_->batches())}});
}

// Whether no batch has been under way for a moment; those that are refused do not count.
bool StreamReactor::IsIdle(absl::Time now) {
  idle_since_ = stream_->batches() == 0 ? std::min(idle_since_, now) : absl::InfiniteFuture();
  return now - idle_since_ >= kDrainLinger;
}

}  // namespace cpshard
