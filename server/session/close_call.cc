#include "server/session/close_call.h"

#include <utility>
#include <variant>

namespace cpshard {

std::shared_ptr<CloseCall> CloseCall::Start(const std::shared_ptr<SessionHub>& hub,
                                            SessionName session,
                                            std::function<void(const absl::Status&)> answer) {
  std::shared_ptr<CloseCall> call(new CloseCall(std::move(answer)));
  const auto peer = hub->Connect([weak = std::weak_ptr(call)] {
    if (const auto alive = weak.lock()) alive->OnTold();
  });
  call->Keep(peer);
  hub->Do([&](auto& delivery, absl::Time now) { delivery.Close(peer->id(), session, now); });
  return call;
}

void CloseCall::Answer(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (std::exchange(answered_, true)) return;
  peer_.reset();
  answer_(status);
}

void CloseCall::Keep(std::shared_ptr<SessionPeer> peer) {
  absl::MutexLock lock(&mu_);
  if (!answered_) peer_ = std::move(peer);
}

void CloseCall::OnTold() {
  std::shared_ptr<SessionPeer> peer;
  {
    absl::MutexLock lock(&mu_);
    peer = peer_;
  }
  if (peer == nullptr) return;
  while (std::optional<SessionPeer::Told> told = peer->Next()) {
    if (const auto* end = std::get_if<EndCall>(&*told)) Answer(end->status);
  }
}

}  // namespace cpshard
