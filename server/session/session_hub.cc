#include "server/session/session_hub.h"

#include "server/log.h"

namespace cpshard {

SessionPeer::~SessionPeer() {
  hub_->DoLater([hub = hub_, id = id_](Delivery& delivery, absl::Time now) {
    hub->peers_.erase(id);
    delivery.Disconnect(id, now);
  });
}

std::optional<SessionPeer::Told> SessionPeer::Next() {
  absl::MutexLock lock(&mu_);
  if (told_.empty()) return std::nullopt;
  std::optional<Told> next = std::move(told_.front());
  told_.pop_front();
  return next;
}

size_t SessionPeer::waiting() const {
  absl::MutexLock lock(&mu_);
  return told_.size();
}

bool SessionPeer::ending() const {
  absl::MutexLock lock(&mu_);
  return ending_;
}

std::shared_ptr<SessionHub> SessionHub::Make(DeliveryOptions options,
                                             std::function<void(std::function<void()>)> run_later) {
  return std::shared_ptr<SessionHub>(new SessionHub(std::move(options), std::move(run_later)));
}

SessionHub::SessionHub(DeliveryOptions options,
                       std::function<void(std::function<void()>)> run_later)
    : options_(std::move(options)),
      run_later_(std::move(run_later)),
      delivery_(std::make_unique<Delivery>(options_)) {}

std::shared_ptr<SessionPeer> SessionHub::Connect(std::function<void()> on_told) {
  absl::MutexLock lock(&mu_);
  const PeerId id = next_id_++;
  const std::shared_ptr<SessionPeer> peer(
      new SessionPeer(shared_from_this(), id, std::move(on_told)));
  peers_[id] = peer;
  return peer;
}

void SessionHub::DoLater(std::function<void(Delivery&, absl::Time)> op) {
  absl::MutexLock lock(&later_mu_);  // Close returns when nobody is in run_later_ any more
  if (!run_later_) return;
  run_later_([self = shared_from_this(), op = std::move(op)] { self->Do(op); });
}

void SessionHub::Tick(absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    if (delivery_->NextTick() > now) return;
  }
  Do([](Delivery& delivery, absl::Time now) { delivery.Tick(now); });
}

void SessionHub::Clear() {
  absl::MutexLock lock(&mu_);
  delivery_ = std::make_unique<Delivery>(options_);
}

void SessionHub::Close() {
  absl::MutexLock lock(&later_mu_);
  run_later_ = nullptr;
}

// Under the lock, so that what two threads bring about comes to a call in one order.
void SessionHub::Route(Outcome& outcome) {
  for (Output& output : delivery_->TakeOutputs()) {
    const auto found = peers_.find(output.to);
    std::shared_ptr<SessionPeer> peer;
    if (found != peers_.end()) peer = found->second.lock();
    if (peer == nullptr) continue;  // on its way to be disconnected
    {
      absl::MutexLock lock(&peer->mu_);
      peer->ending_ |= std::holds_alternative<EndCall>(output.what);
      peer->told_.push_back(std::move(output.what));
    }
    if (outcome.told.empty() || outcome.told.back() != peer) {
      outcome.told.push_back(std::move(peer));
    }
  }
  for (Alert& alert : delivery_->TakeAlerts()) outcome.alerts.push_back(std::move(alert));
}

void SessionHub::Tell(const Outcome& outcome) {
  for (const Alert& alert : outcome.alerts) {
    const auto log = alert.is_notice ? LogInfo : LogError;
    log(alert.text, {{"code", alert.code}, {"group", alert.group}});
  }
  for (const std::shared_ptr<SessionPeer>& peer : outcome.told) peer->on_told_();
}

SentNotice::~SentNotice() {
  const std::shared_ptr<SessionHub> hub = peer_->hub_;
  hub->DoLater(
      [peer = std::move(peer_), at = at_, microbatch = microbatch_](
          Delivery& delivery, absl::Time now) { delivery.Sent(peer->id(), at, microbatch, now); });
}

}  // namespace cpshard
