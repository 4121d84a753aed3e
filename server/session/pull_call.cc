#include "server/session/pull_call.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/plan/status_macros.h"
#include "server/log.h"
#include "server/session/errors.h"
#include "server/session/stored_batch.h"
#include "server/to_peer.h"

namespace cpshard {
namespace {

constexpr size_t kMaxMade = 4;      // answers that are made and not handed to gRPC
constexpr size_t kMaxAsked = 1024;  // Wants that are not answered, refusals included
// What a call that is ended gets to take what is being sent, before it is cut off: its buffers are
// wanted.
constexpr absl::Duration kEndGrace = absl::Seconds(1);
// What a draining server waits for a reader that asks for nothing: its trainer is in a step.
constexpr absl::Duration kAskGrace = absl::Seconds(5);

}  // namespace

std::shared_ptr<PullCall> PullCall::Make(const StreamContext& context,
                                         const std::shared_ptr<SessionHub>& hub,
                                         std::optional<GetShard> one,
                                         std::function<void()> on_output) {
  std::shared_ptr<PullCall> call(new PullCall(context, hub, std::move(one), std::move(on_output)));
  call->peer_ = hub->Connect([weak = std::weak_ptr(call)] {
    if (const auto alive = weak.lock()) alive->OnTold();
  });
  return call;
}

PullCall::PullCall(const StreamContext& context, std::shared_ptr<SessionHub> hub,
                   std::optional<GetShard> one, std::function<void()> on_output)
    : context_(context),
      hub_(std::move(hub)),
      one_(std::move(one)),
      on_output_(std::move(on_output)) {}

// --- requests

void PullCall::OnMessage(absl::Span<const Bytes> message, absl::Time) {
  bool claimed;
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_) return;
    heard_ = absl::Now();
    claimed = Claim();  // what the request brings is answered by this thread
  }
  absl::StatusOr<PullRequest> request = DecodePullRequest(message);
  const absl::Status status = request.ok() ? OnRequest(*std::move(request)) : request.status();
  if (!status.ok()) End(status);
  if (claimed) MakeSome();
  on_output_();
}

absl::Status PullCall::OnRequest(PullRequest request) {
  bool attached;
  {
    absl::MutexLock lock(&mu_);
    attached = attached_;
  }
  auto* const session = std::get_if<SessionName>(&request);
  if (attached != (session == nullptr)) {
    return absl::InvalidArgumentError(attached ? "the call names a session twice"
                                               : "the first message of the call names no session");
  }
  if (session != nullptr) return Attach(*session, /*lasting=*/true);
  if (auto* const want = std::get_if<Want>(&request)) {
    Ask(std::move(*want));
    return absl::OkStatus();
  }
  return hub_->Do([&](auto& delivery, absl::Time now) {
    const auto* const commit = std::get_if<Commit>(&request);
    return commit != nullptr ? delivery.Commit(peer_->id(), *commit, now)
                             : delivery.ClosePass(peer_->id(), std::get<PassClosed>(request), now);
  });
}

absl::Status PullCall::Attach(const SessionName& session, bool lasting) {
  CPSHARD_RETURN_IF_ERROR(hub_->Do([&](auto& delivery, absl::Time now) {
    return delivery.Attach(peer_->id(), session, lasting, now);
  }));
  absl::MutexLock lock(&mu_);
  attached_ = true;
  return absl::OkStatus();
}

void PullCall::Ask(Want want) {
  {
    absl::MutexLock lock(&mu_);
    if (!asked_.emplace(want.id, want.microbatch.has_value()).second) {
      end_ = absl::InvalidArgumentError(
          absl::StrCat("want ", want.id, " was asked for again before it was answered"));
      return;
    }
  }
  hub_->Do([&](auto& delivery, absl::Time now) { delivery.Want(peer_->id(), want, now); });
}

void PullCall::OnInputEnd() {
  bool claimed;
  {
    absl::MutexLock lock(&mu_);
    claimed = Claim();
  }
  if (one_) {
    absl::Status status = Attach(one_->session, /*lasting=*/false);
    if (status.ok() && one_->commit) {
      const cpshard::Commit commit = {{one_->want.at.stream, one_->want.at.pass, *one_->commit}};
      status = hub_->Do([&](auto& delivery, absl::Time now) {
        return delivery.Commit(peer_->id(), commit, now);
      });
    }
    if (status.ok()) {
      Ask(one_->want);
    } else {
      End(std::move(status));
    }
  }
  {
    absl::MutexLock lock(&mu_);
    input_ended_ = true;
  }
  if (claimed) MakeSome();
  on_output_();
}

bool PullCall::WantsInput() const {
  absl::MutexLock lock(&mu_);
  return !end_ && !abandoned_ && asked_.size() < kMaxAsked;
}

// --- answers

void PullCall::OnTold() {
  {
    absl::MutexLock lock(&mu_);
    if (!Claim()) return;  // who has claimed it looks again
  }
  context_.run_later([self = shared_from_this()] { self->MakeSome(); });
}

bool PullCall::Claim() { return !std::exchange(making_, true); }

void PullCall::MakeSome() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const bool full = outgoing_.size() >= kMaxMade && !abandoned_ && !end_ && !peer_->ending();
      if (full || peer_->waiting() == 0) {
        making_ = false;
        return;
      }
    }
    MakeOne();
    on_output_();
  }
}

// Takes the next thing that is to be told.
void PullCall::MakeOne() {
  std::optional<SessionPeer::Told> told = peer_->Next();
  if (!told) return;
  if (auto* const deliver = std::get_if<DeliverShard>(&*told)) {
    Take(std::move(*deliver));
  } else if (auto* const refused = std::get_if<RequestStatus>(&*told)) {
    Refuse(refused->id, std::move(refused->status));
  } else if (auto* const end = std::get_if<EndCall>(&*told)) {
    End(std::move(end->status));
  }
}

void PullCall::Take(DeliverShard deliver) {
  auto sent = std::make_shared<SentNotice>(peer_, deliver.head.at, deliver.head.microbatch);
  const uint64_t id = deliver.head.id;
  bool is_last = deliver.head.last;
  {
    absl::MutexLock lock(&mu_);
    const auto asked = asked_.find(id);
    // Given up, or a microbatch before it was refused.
    if (end_ || abandoned_ || peer_->ending() || asked == asked_.end()) return;
    is_last |= asked->second;
  }
  const auto& batch = static_cast<const StoredBatch&>(*deliver.payload);
  absl::StatusOr<Answer> answer =
      batch.PartOf(*deliver.terms, deliver.cp_rank, deliver.min_padded_len, deliver.keys, sent);
  if (!answer.ok()) {
    const absl::Status& status = answer.status();
    Refuse(id, ToPeer(status));
    if (!WasUnderWayWhenLost(status)) return;
    on_output_();
    LogError("the device was lost with this batch under way",  // last: the log may block
             {{"group", deliver.terms->group},
              {"batch", Name(deliver.head.at)},
              {"microbatch", absl::StrCat(deliver.head.microbatch)}});
    return;
  }
  absl::MutexLock lock(&mu_);
  if (end_ || abandoned_) return;
  if (is_last) asked_.erase(id);
  outgoing_.emplace_back(std::move(deliver.head), *std::move(answer));
}

void PullCall::Refuse(uint64_t id, absl::Status status) {
  absl::MutexLock lock(&mu_);
  if (asked_.erase(id) == 0 || end_ || abandoned_) return;
  if (one_) {
    end_ = std::move(status);
  } else {
    outgoing_.emplace_back(id, BatchError{std::move(status), {}});
  }
}

// What waits to be sent is void: it is of a session that has been replaced or fenced, or broke a
// rule.
void PullCall::End(absl::Status status) {
  std::deque<OutgoingAnswer> outgoing;  // let go outside of the lock
  absl::MutexLock lock(&mu_);
  if (end_) return;
  end_ = std::move(status);
  outgoing.swap(outgoing_);
  output_due_ = absl::Now() + kEndGrace;
}

std::optional<OutFrame> PullCall::NextFrame(absl::Time now) {
  absl::MutexLock lock(&mu_);
  if (abandoned_ || outgoing_.empty()) return std::nullopt;
  OutgoingAnswer& answer = outgoing_.front();
  if (!answer.begun()) output_due_ = now + TimeFor(answer.bytes(), context_.stall);
  OutFrame frame = answer.Next();
  if (answer.done()) {
    output_due_ = end_ ? now + kEndGrace : absl::InfiniteFuture();
    outgoing_.pop_front();
    if (peer_->waiting() > 0 && Claim()) {
      context_.run_later([self = shared_from_this()] { self->MakeSome(); });
    }
  }
  return frame;
}

absl::Time PullCall::OutputDue() const {
  absl::MutexLock lock(&mu_);
  return output_due_;
}

// --- the end

std::optional<absl::Status> PullCall::Ended() const {
  absl::MutexLock lock(&mu_);
  if (abandoned_) return absl::CancelledError("the peer is gone");
  if (!outgoing_.empty()) return std::nullopt;
  if (end_) return end_;
  if (input_ended_ && asked_.empty()) return absl::OkStatus();
  return std::nullopt;
}

void PullCall::EndIfIdle(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (!end_) end_ = status;
  }
  on_output_();
}

void PullCall::Abandon() {
  std::deque<OutgoingAnswer> outgoing;
  absl::MutexLock lock(&mu_);
  abandoned_ = true;
  outgoing.swap(outgoing_);
}

void PullCall::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  heard_ = absl::Now();
}

int64_t PullCall::batches() const {
  {
    absl::MutexLock lock(&mu_);
    const auto under_way = static_cast<int64_t>(outgoing_.size() + peer_->waiting());
    const bool waits = !attached_ || !asked_.empty();
    if (waits || !draining_) return under_way + (waits ? 0 : 1);
    if (under_way > 0 || absl::Now() - heard_ > kAskGrace) return under_way;
  }
  const bool may_ask =
      hub_->Do([&](auto& delivery, absl::Time) { return delivery.HasMore(peer_->id()); });
  return may_ask ? 1 : 0;
}

int64_t PullCall::queued_bytes() const {
  absl::MutexLock lock(&mu_);
  int64_t bytes = 0;
  for (const OutgoingAnswer& answer : outgoing_) bytes += answer.bytes();
  return bytes;
}

}  // namespace cpshard
