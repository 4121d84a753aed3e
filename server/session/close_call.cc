#include "server/session/close_call.h"

#include <utility>
#include <variant>

#include "proto/status.h"

namespace cpshard {

void ClosingAnswer::Give(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (std::exchange(given_, true)) return;
  peer_.reset();
  call_->Finish(ToGrpc(status));
}

void ClosingAnswer::Keep(std::shared_ptr<SessionPeer> peer) {
  absl::MutexLock lock(&mu_);
  if (!given_) peer_ = std::move(peer);
}

void ClosingAnswer::OnTold() {
  std::shared_ptr<SessionPeer> peer;
  {
    absl::MutexLock lock(&mu_);
    peer = peer_;
  }
  if (peer == nullptr) return;
  while (std::optional<SessionPeer::Told> told = peer->Next()) {
    if (const auto* end = std::get_if<EndCall>(&*told)) Give(end->status);
  }
}

CloseCall::CloseCall(std::function<void()> on_done)
    : on_done_(std::move(on_done)), answer_(std::make_shared<ClosingAnswer>(this)) {}

CloseCall* CloseCall::Start(const std::shared_ptr<SessionHub>& hub, SessionName session,
                            std::function<void()> on_done) {
  auto* const call = new CloseCall(std::move(on_done));
  const std::shared_ptr<ClosingAnswer> answer = call->answer_;
  const auto peer = hub->Connect([answer] { answer->OnTold(); });
  answer->Keep(peer);
  hub->Do([&](auto& delivery, absl::Time now) { delivery.Close(peer->id(), session, now); });
  return call;
}

void CloseCall::OnCancel() {
  const std::shared_ptr<ClosingAnswer> answer = answer_;  // the call may go
  answer->Give(absl::CancelledError("the caller gave up"));
}

void CloseCall::OnDone() {
  on_done_();
  delete this;
}

}  // namespace cpshard
