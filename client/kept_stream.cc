#include "client/kept_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cpshard {

absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

KeptStream::KeptStream(Address address, std::unique_ptr<WakeupFd> wakeup, std::string method)
    : address_(std::move(address)), method_(std::move(method)), wakeup_(std::move(wakeup)) {}

void KeptStream::Start() {
  keeper_ = std::thread([this] { Keep(); });
}

void KeptStream::Close() {
  if (!keeper_.joinable()) return;
  {
    absl::MutexLock lock(&keeper_mutex_);
    closing_ = true;
  }
  WakeKeeper();
  keeper_.join();
  HangUp();
  std::shared_ptr<StreamConnection> connection;
  absl::MutexLock lock(&keeper_mutex_);
  keeper_mutex_.Await(absl::Condition(
      +[](std::shared_ptr<StreamCall>* call) { return *call == nullptr; }, &call_));
  connection.swap(connection_);
}

// --- any thread

void KeptStream::WakeCall() {
  std::shared_ptr<StreamCall> call;
  {
    absl::MutexLock lock(&keeper_mutex_);
    call = call_;
  }
  if (call != nullptr) call->Wake();
}

void KeptStream::HangUp() {
  std::shared_ptr<StreamCall> call;
  {
    absl::MutexLock lock(&keeper_mutex_);
    call = call_;
  }
  if (call != nullptr) call->Cancel();
}

void KeptStream::WakeKeeperBefore(absl::Time due) {
  {
    absl::MutexLock lock(&keeper_mutex_);
    if (due >= wakes_) return;
    wakes_ = due;
    if (!asleep_) return;  // it looks at wakes_ before it sleeps
  }
  WakeKeeper();
}

std::shared_ptr<StreamConnection> KeptStream::connection() const {
  absl::MutexLock lock(&keeper_mutex_);
  return call_ == nullptr ? nullptr : connection_;
}

// --- the keeper

void KeptStream::Keep() {
  while (Sleep(-1, absl::InfiniteDuration())) {
    bool down;
    {
      absl::MutexLock lock(&keeper_mutex_);
      down = call_ == nullptr;
    }
    if (down && WantsConnection(SteadyNow())) MakeConnection();
  }
}

// Does what is due, then sleeps until there is more, `fd` can be written, or `patience` has passed.
// False: the stream is being closed.
bool KeptStream::Sleep(int fd, absl::Duration patience) {
  const absl::Time due = Tick(SteadyNow());
  {
    absl::MutexLock lock(&keeper_mutex_);
    if (closing_) return false;
    wakes_ = std::min(due, wakes_);
    asleep_ = true;
    patience = std::min(patience, wakes_ - SteadyNow());
  }
  wakeup_->Sleep(fd, patience);
  absl::MutexLock lock(&keeper_mutex_);
  asleep_ = false;
  wakes_ = absl::InfiniteFuture();
  return !closing_;
}

void KeptStream::MakeConnection() {
  OnConnecting();
  absl::StatusOr<Greeted> greeted = Greet(
      address_, *wakeup_, [this](int fd, absl::Duration patience) { return Sleep(fd, patience); });
  const absl::Status status = greeted.ok() ? OnGreeted(*greeted) : greeted.status();
  if (!status.ok()) {
    if (greeted.ok()) greeted->connection->Cut();
    OnDown(status, Stage::kConnecting);
    return;
  }
  const auto call = StreamCall::Make(method_, greeted->connection,
                                     std::static_pointer_cast<StreamUser>(shared_from_this()));
  OnUp();
  {
    absl::MutexLock lock(&keeper_mutex_);
    connection_.swap(greeted->connection);
    call_ = call;
  }
  call->Wake();
  call->Start();
}

void KeptStream::OnEnd(const absl::Status& status) {
  OnDown(status, Stage::kConnected);
  std::shared_ptr<StreamCall> ended;
  {
    absl::MutexLock lock(&keeper_mutex_);
    ended.swap(call_);
  }
  WakeKeeper();
}

}  // namespace cpshard
