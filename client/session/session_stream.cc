#include "client/session/session_stream.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"

namespace cpshard {

SessionStream::SessionStream(Address address, std::unique_ptr<WakeupFd> wakeup, std::string method)
    : KeptStream(std::move(address), std::move(wakeup), std::move(method)),
      clock_(std::random_device()()) {}

void SessionStream::EndLocked(absl::Status status) {
  if (!ended_) ended_ = std::move(status);
}

void SessionStream::End(absl::Status status) {
  Update([&] {
    mutex_.AssertHeld();
    EndLocked(std::move(status));
  });
}

absl::Status SessionStream::Broken(absl::string_view what) {
  absl::Status status = absl::InternalError(absl::StrCat(address().text, ": ", what));
  End(status);
  return status;
}

void SessionStream::Update(absl::FunctionRef<void()> change) { Apply(change, {}); }

void SessionStream::UpdateFromCall(absl::FunctionRef<void()> change) {
  Apply(change, {.call = false, .waiters = false});
}

void SessionStream::UpdateQuietly(absl::FunctionRef<void()> change) {
  Apply(change, {.call = false});
}

void SessionStream::Apply(absl::FunctionRef<void()> change, Wakes wakes) {
  absl::Time due = absl::InfiniteFuture();
  bool over = false;
  {
    absl::MutexLock lock(&mutex_);
    change();
    if (std::optional<absl::Status> outcome = Outcome()) EndLocked(*std::move(outcome));
    const absl::Time now = SteadyNow();
    clock_.Postponed(Postponed(), now);
    clock_.Owed(Owed(), now);
    over = ended_.has_value();
    if (!over) due = clock_.NextEvent();
    if (wakes.waiters || over) changed_.SignalAll();
  }
  if (over) {
    HangUp();
  } else if (wakes.call) {
    WakeCall();
  }
  WakeKeeperBefore(due);
}

// --- the connection

absl::Time SessionStream::Tick(absl::Time now) {
  bool silent = false;
  Update([&] {
    mutex_.AssertHeld();
    if (clock_.TakeAgain(now)) TryAgain();
    silent = clock_.TakeSilence(now);
  });
  if (silent) HangUp();
  OnTick();
  absl::MutexLock lock(&mutex_);
  return ended_ ? absl::InfiniteFuture() : clock_.NextEvent();
}

bool SessionStream::WantsConnection(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  return !ended_ && clock_.WantsConnection(now);
}

void SessionStream::OnConnecting() {
  Update([this] {
    mutex_.AssertHeld();
    clock_.Connecting();
  });
}

void SessionStream::OnUp() {
  Update([this] {
    mutex_.AssertHeld();
    clock_.Up(SteadyNow());
    trouble_ = absl::OkStatus();
    Connected();
  });
}

void SessionStream::OnDown(const absl::Status& status, Stage stage) {
  bool lost = false;
  Update([&] {
    mutex_.AssertHeld();
    Disconnected();
    clock_.Down(SteadyNow(), DetailsOf(status).value_or(ErrorDetails()).retry_after);
    trouble_ = absl::Status(
        status.code(),
        absl::StrCat(address().text,
                     stage == Stage::kConnected ? ": connection lost: " : ": cannot connect: ",
                     status.message()));
    if (IsFinal(status, stage)) EndLocked(status);
    lost = stage == Stage::kConnected && !ended_;
  });
  if (lost) OnLost(status);
}

}  // namespace cpshard
