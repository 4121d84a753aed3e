#include "server/stream/asked_stream.h"

#include <algorithm>
#include <utility>

#include "server/to_peer.h"

namespace cpshard {

AskedStream::AskedStream(Ask ask, absl::Duration stall, std::function<void()> on_output)
    : ask_(std::move(ask)), stall_(stall), on_output_(std::move(on_output)) {}

std::shared_ptr<FrameStream> AskedStream::asked() const {
  absl::MutexLock lock(&mu_);
  return asked_;
}

void AskedStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (asked_ != nullptr || end_) return;
    end_ = status;
  }
  on_output_();
}

void AskedStream::OnMessage(absl::Span<const Bytes> message, absl::Time) {
  if (!WantsInput()) return;
  absl::StatusOr<std::shared_ptr<FrameStream>> asked = ask_(message);
  if (!asked.ok()) return End(asked.status());
  {
    absl::MutexLock lock(&mu_);
    if (end_) return (*asked)->Abandon();  // given up meanwhile
    asked_ = *asked;
  }
  (*asked)->OnInputEnd();
  on_output_();
}

void AskedStream::OnInputEnd() { End(absl::InvalidArgumentError("the call has no request")); }

bool AskedStream::WantsInput() const {
  absl::MutexLock lock(&mu_);
  return asked_ == nullptr && !end_;
}

std::optional<OutFrame> AskedStream::NextFrame(absl::Time now) {
  const auto asked = this->asked();
  return asked == nullptr ? std::nullopt : asked->NextFrame(now);
}

absl::Time AskedStream::OutputDue() const {
  const auto asked = this->asked();
  return asked == nullptr ? absl::InfiniteFuture() : asked->OutputDue();
}

std::optional<absl::Status> AskedStream::Ended() const {
  absl::MutexLock lock(&mu_);
  return asked_ == nullptr ? end_ : asked_->Ended();
}

void AskedStream::Drain() {
  if (const auto asked = this->asked()) return asked->Drain();
  End(ShuttingDown());
}

void AskedStream::EndIfIdle(const absl::Status& status) {
  if (const auto asked = this->asked()) return asked->EndIfIdle(status);
  End(status);
}

void AskedStream::Expire(absl::Time input) {
  if (const auto asked = this->asked()) return asked->Expire(input);
  bool late;
  {
    absl::MutexLock lock(&mu_);
    begun_ = std::min(begun_, input);
    late = input - begun_ >= stall_;
  }
  if (late) End(LateRequest(stall_));
}

void AskedStream::Abandon() {
  if (const auto asked = this->asked()) return asked->Abandon();
  absl::MutexLock lock(&mu_);
  // Without on_output_: it is the call that gives up, and looks itself.
  if (asked_ == nullptr && !end_) end_ = absl::CancelledError("the caller gave up");
}

int64_t AskedStream::batches() const {
  const auto asked = this->asked();
  return asked == nullptr ? 0 : asked->batches();
}

int64_t AskedStream::queued_bytes() const {
  const auto asked = this->asked();
  return asked == nullptr ? 0 : asked->queued_bytes();
}

}  // namespace cpshard
