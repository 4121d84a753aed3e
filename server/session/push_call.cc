#include "server/session/push_call.h"

#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/exec/device/device_lost.h"
#include "core/plan/status_macros.h"
#include "proto/session_codec.h"
#include "server/log.h"
#include "server/session/errors.h"
#include "server/session/stored_batch.h"
#include "server/to_peer.h"

namespace cpshard {
namespace {

constexpr size_t kMaxTold = 256;       // notices that wait to be sent, before reading stops
constexpr size_t kMaxDropping = 1024;  // batches that are dropped and whose last frame never came

// What a loader is told, on the wire. Credits are in bytes sent.
struct ToNotice {
  std::optional<LoaderNotice> operator()(LoaderCredit credit) const {
    credit.bytes = SentBytesOfStep(credit.bytes);
    return credit;
  }
  std::optional<LoaderNotice> operator()(PushAck ack) const {
    return AckMessage{std::move(ack.at), ack.epoch, ack.microbatch, std::move(ack.status)};
  }
  std::optional<LoaderNotice> operator()(const DrainNotice&) const { return DrainMessage{}; }
  std::optional<LoaderNotice> operator()(Position position) const { return position; }
  std::optional<LoaderNotice> operator()(Released released) const { return released; }
  std::optional<LoaderNotice> operator()(PassDone done) const { return done; }
  template <typename Other>  // of readers
  std::optional<LoaderNotice> operator()(const Other&) const {
    return std::nullopt;
  }
};

}  // namespace

std::shared_ptr<PushCall> PushCall::Make(const StreamContext& context,
                                         const std::shared_ptr<SessionHub>& hub,
                                         std::string instance, std::function<void()> on_output) {
  std::shared_ptr<PushCall> call(
      new PushCall(context, hub, std::move(instance), std::move(on_output)));
  call->peer_ = hub->Connect([weak = std::weak_ptr(call)] {
    if (const auto alive = weak.lock()) alive->OnTold();
  });
  return call;
}

PushCall::PushCall(const StreamContext& context, std::shared_ptr<SessionHub> hub,
                   std::string instance, std::function<void()> on_output)
    : context_(context),
      hub_(std::move(hub)),
      instance_(std::move(instance)),
      on_output_(std::move(on_output)) {}

// --- input

void PushCall::OnMessage(absl::Span<const Bytes> message, absl::Time input) {
  Greeting greeting;
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_) return;
    greeting = greeting_;
  }
  const absl::StatusOr<BatchFrame> frame = DecodeBatchFrame(message, FrameOf::kSession);
  absl::Status status = frame.ok() ? OnFrame(*frame, greeting, input) : frame.status();
  if (!status.ok()) End(std::move(status));
  on_output_();
}

absl::Status PushCall::OnFrame(const BatchFrame& frame, Greeting greeting, absl::Time input) {
  if (frame.hello.has_value() != (greeting == Greeting::kNone)) {
    return absl::InvalidArgumentError(frame.hello ? "the call has two hellos"
                                                  : "the first message of the call is no hello");
  }
  if (frame.hello) return OnHello(*frame.hello);
  if (!frame.end) return OnBatch(frame, input);
  return hub_->Do(
      [&](auto& delivery, absl::Time now) { return delivery.End(peer_->id(), *frame.end, now); });
}

absl::Status PushCall::OnHello(const LoaderHello& hello) {
  {
    absl::MutexLock lock(&mu_);
    greeting_ = Greeting::kAsked;
  }
  CPSHARD_RETURN_IF_ERROR(hub_->Do(
      [&](auto& delivery, absl::Time now) { return delivery.Hello(peer_->id(), hello, now); }));
  absl::MutexLock lock(&mu_);
  greeting_ = Greeting::kAnswered;
  return absl::OkStatus();
}

absl::Status PushCall::OnBatch(const BatchFrame& frame, absl::Time input) {
  LandingPtr landing;
  {
    absl::MutexLock lock(&mu_);
    landing = Find(frame.batch_id);
    if (landing == nullptr && dropping_.contains(frame.batch_id)) {
      const bool over = frame.begin != nullptr || frame.last || frame.cancel;
      if (over) dropping_.erase(frame.batch_id);
      if (frame.begin == nullptr) return absl::OkStatus();
    }
    if (frame.cancel) landings_.erase(frame.batch_id);
  }
  if (frame.cancel) {
    if (landing != nullptr) GiveUp(landing, absl::CancelledError("the loader gave the batch up"));
    return absl::OkStatus();
  }
  if (landing != nullptr && frame.begin != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch ", frame.batch_id, " was begun again before its last frame had come"));
  }
  if (landing != nullptr) {
    Land(landing, frame, input);
    return absl::OkStatus();
  }
  if (frame.begin != nullptr && frame.push) return Begin(frame, input);
  return absl::InvalidArgumentError(absl::StrCat("frame_seq ", frame.frame_seq, " of batch ",
                                                 frame.batch_id,
                                                 " came for a batch that was not begun"));
}

absl::Status PushCall::Begin(const BatchFrame& frame, absl::Time input) {
  const int64_t bytes = MemoryOfBatch(StatedBytes(*frame.begin));
  PushVerdict verdict = hub_->Do([&](auto& delivery, absl::Time now) {
    return delivery.BeginPush(peer_->id(), *frame.push, bytes, now);
  });
  auto landing = std::make_shared<Landing>();
  landing->push = verdict.push;
  landing->at = frame.push->at;
  landing->microbatch = frame.push->microbatch;
  landing->terms = std::move(verdict.terms);
  landing->begun = landing->moved = input;
  absl::Status status = absl::CancelledError("it is to be dropped");
  if (landing->push != 0) {
    auto batch = Arrive(frame, *landing->terms);
    status = batch.status();
    if (batch.ok()) {
      landing->batch = *std::move(batch);
      landing->bytes = landing->batch->total_bytes();
    }
  }
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_ || peer_->ending()) status = absl::CancelledError("the call has ended");
    if (status.ok()) {
      landings_[frame.batch_id] = landing;
    } else if (!frame.last) {
      dropping_.insert(frame.batch_id);
    }
    if (dropping_.size() > kMaxDropping) {
      return TooMany(absl::StrCat("over ", kMaxDropping,
                                  " batches were refused and their last frames never came"));
    }
  }
  if (status.ok()) {
    Land(landing, frame, input);
  } else if (landing->push != 0) {
    EndPush(landing->push, std::move(status));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ArrivingBatch>> PushCall::Arrive(const BatchFrame& frame,
                                                                const SessionTerms& terms) {
  if (options_of_ != terms.options) {
    CPSHARD_ASSIGN_OR_RETURN(options_, Options::FromBytes(terms.options));
    options_of_ = terms.options;
  }
  CPSHARD_ASSIGN_OR_RETURN(
      BatchBegin begin, DecodeBatchBegin(*frame.begin, options_, terms.cp_size, context_.limits));
  CPSHARD_ASSIGN_OR_RETURN(auto batch, ArrivingBatch::Make(std::move(begin), context_.limits));
  CPSHARD_RETURN_IF_ERROR(batch->TakeMemory(*context_.pool));
  return batch;
}

void PushCall::Land(const LandingPtr& landing, const BatchFrame& frame, absl::Time input) {
  const absl::Status status = landing->batch->Land(frame);
  absl::StatusOr<LandedBatch> landed = absl::UnknownError("it has not landed");
  if (!status.ok()) {
    landed = status;
  } else if (frame.last) {
    landed = Complete(*landing);
  }
  {
    absl::MutexLock lock(&mu_);
    if (landing->dead) return;
    if (frame.body.size > 0) landing->moved = input;
    if (status.ok() && !frame.last) return;
    landings_.erase(frame.batch_id);
    if (!frame.last) dropping_.insert(frame.batch_id);
  }
  const absl::Status end = IsDeviceLost(landed.status()) ? landed.status() : absl::OkStatus();
  EndPush(landing->push, std::move(landed));
  // The server goes: else the loader, which has its credit back, would push again at once.
  if (!end.ok()) End(ToPeer(end));
  if (WasUnderWayWhenLost(end)) {  // last: the log may block
    LogError("the device was lost with this batch under way",
             {{"group", landing->terms->group},
              {"batch", Name(landing->at)},
              {"microbatch", absl::StrCat(landing->microbatch)}});
  }
}

absl::StatusOr<LandedBatch> PushCall::Complete(Landing& landing) {
  CPSHARD_RETURN_IF_ERROR(landing.batch->CheckComplete());
  const Staging staging = {context_.limits, context_.executors, context_.pool};
  CPSHARD_ASSIGN_OR_RETURN(const auto stored,
                           StoredBatch::Make(landing.batch->Take(), landing.terms, staging));
  landing.batch.reset();
  return stored->Landed(stored);
}

void PushCall::EndPush(uint64_t push, absl::StatusOr<LandedBatch> landed) {
  if (!landed.ok()) landed = ToPeer(landed.status());
  hub_->Do([&](auto& delivery, absl::Time now) { delivery.EndPush(push, std::move(landed), now); });
}

void PushCall::OnInputEnd() {
  End(absl::OkStatus());
  on_output_();
}

bool PushCall::WantsInput() const {
  absl::MutexLock lock(&mu_);
  return !end_ && !abandoned_ && peer_->waiting() < kMaxTold;
}

PushCall::LandingPtr PushCall::Find(uint64_t id) const {
  const auto it = landings_.find(id);
  return it == landings_.end() ? nullptr : it->second;
}

// --- giving up

// Later: also from where a lock is held. It is not in the list any more.
void PushCall::GiveUp(const LandingPtr& landing, absl::Status why) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(landing->dead, true)) return;
  }
  hub_->DoLater([push = landing->push, why = std::move(why)](auto& delivery, absl::Time now) {
    delivery.EndPush(push, why, now);
  });
}

void PushCall::OnTold() {
  // At once: another call of the loader's is to push what is landing, and this one may be stuck.
  if (peer_->ending()) GiveUpAll();
  on_output_();
}

void PushCall::End(absl::Status status) {
  {
    absl::MutexLock lock(&mu_);
    if (!end_) end_ = std::move(status);
  }
  GiveUpAll();
}

void PushCall::GiveUpAll() {
  std::map<uint64_t, LandingPtr> landings;
  {
    absl::MutexLock lock(&mu_);
    landings.swap(landings_);
  }
  for (const auto& [id, landing] : landings) {
    GiveUp(landing, absl::CancelledError("the call ended in the middle of the batch"));
  }
}

void PushCall::Abandon() {
  {
    absl::MutexLock lock(&mu_);
    abandoned_ = true;
  }
  End(absl::CancelledError("the peer is gone"));
}

void PushCall::Expire(absl::Time input) {
  std::map<uint64_t, std::pair<LandingPtr, absl::Status>> late;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, landing] : landings_) {
      absl::Status status =
          Overdue(landing->bytes, landing->begun, landing->moved, input, context_.stall);
      if (!status.ok()) late[id] = {landing, std::move(status)};
    }
    for (const auto& [id, landing] : late) {
      landings_.erase(id);
      dropping_.insert(id);
    }
  }
  for (const auto& [id, landing] : late) GiveUp(landing.first, landing.second);
}

void PushCall::EndIfIdle(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (!end_ && landings_.empty()) end_ = status;
  }
  on_output_();
}

// --- output

std::optional<OutFrame> PushCall::NextFrame(absl::Time) {
  absl::MutexLock lock(&mu_);
  if (abandoned_ || void_ || greeting_ == Greeting::kAsked) return std::nullopt;
  if (greeting_ == Greeting::kAnswered) {
    greeting_ = Greeting::kDone;
    return OutFrame{EncodeLoaderNotice(Welcome{instance_}), {}};
  }
  while (std::optional<SessionPeer::Told> told = peer_->Next()) {
    if (auto* const end = std::get_if<EndCall>(&*told)) {
      void_ = true;
      if (!end_) end_ = std::move(end->status);
      return std::nullopt;
    }
    if (const auto notice = std::visit(ToNotice(), *std::move(told))) {
      return OutFrame{EncodeLoaderNotice(*notice), {}};
    }
  }
  return std::nullopt;
}

absl::Time PushCall::OutputDue() const { return absl::InfiniteFuture(); }

std::optional<absl::Status> PushCall::Ended() const {
  absl::MutexLock lock(&mu_);
  if (abandoned_) return absl::CancelledError("the peer is gone");
  if (!end_ || (peer_->waiting() > 0 && !void_)) return std::nullopt;
  return end_;
}

int64_t PushCall::batches() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(landings_.size());
}

}  // namespace cpshard
