#include "client/session/session_clock.h"

#include <utility>

#include "proto/error_details.h"

namespace cpshard {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

bool MayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted: {
      // A server says after how long there may be room, unless there never is.
      const std::optional<ErrorDetails> details = DetailsOf(status);
      return !details || details->retry_after;
    }
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:  // of gRPC too, where a connection breaks at a bad moment
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

// --- connection

void SessionClock::Up(absl::Time now) {
  link_ = Link::kUp;
  heard_ = now;
}

void SessionClock::Down(absl::Time now, std::optional<absl::Duration> at_least) {
  link_ = Link::kDown;
  connect_at_ = now + backoff_.Next();
  if (at_least) connect_at_ = std::max(connect_at_, now + backoff_.Spread(*at_least));
  again_at_ = absl::InfiniteFuture();
  owed_ = false;
}

void SessionClock::Heard(absl::Time now) {
  heard_ = now;
  backoff_.Reset();
}

// --- what is outstanding

void SessionClock::Postponed(bool postponed, absl::Time now) {
  const absl::Duration pause = std::max(kPause, std::exchange(pause_, absl::ZeroDuration()));
  if (!postponed) {
    again_at_ = absl::InfiniteFuture();
  } else if (again_at_ == absl::InfiniteFuture()) {
    again_at_ = now + backoff_.Spread(pause);
  }
}

bool SessionClock::TakeAgain(absl::Time now) {
  if (now < again_at_) return false;
  again_at_ = absl::InfiniteFuture();
  return true;
}

void SessionClock::Owed(bool owed, absl::Time now) {
  if (owed && !owed_) heard_ = std::max(heard_, now);
  owed_ = owed;
}

bool SessionClock::TakeSilence(absl::Time now) {
  if (link_ != Link::kUp || !owed_ || now < heard_ + kSilence) return false;
  heard_ = now;
  return true;
}

absl::Time SessionClock::NextEvent() const {
  if (link_ == Link::kDown) return connect_at_;
  if (link_ == Link::kConnecting) return absl::InfiniteFuture();
  return std::min(again_at_, owed_ ? heard_ + kSilence : absl::InfiniteFuture());
}

}  // namespace cpshard
