#include "client/batch_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace cpshard {
namespace {

// A batch that was lost with so many connections ends with the last one.
constexpr int64_t kMostLosses = 5;
// From so many on it goes alone: if it is what ends them, its neighbours do not fall with it.
constexpr int64_t kLossesToGoAlone = 2;

// Statuses of a connection that trying again does not change.
bool IsFinal(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kUnimplemented ||
         code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kPermissionDenied;
}

std::string TextOf(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

}  // namespace

BatchLedger::BatchLedger(std::string address, const StreamOptions& options, uint32_t seed)
    : address_(std::move(address)),
      options_(options),
      backoff_(seed),
      window_(options.max_inflight_batches, options.checksums) {}

// --- callers

uint64_t BatchLedger::Add(std::shared_ptr<PendingBatch> pending,
                          std::shared_ptr<const OutgoingBatch> batch, absl::Time now) {
  const uint64_t number = next_number_++;
  batches_[number] = {std::move(pending), std::move(batch), now + options_.deadline};
  return number;
}

void BatchLedger::Cancel(uint64_t number) {
  const auto entry = batches_.find(number);
  if (entry != batches_.end()) GiveUp(entry, absl::CancelledError("the batch was cancelled"));
}

void BatchLedger::CloseAll(const absl::Status& status) {
  while (!batches_.empty()) GiveUp(batches_.begin(), status);
}

std::vector<ClosedBatch> BatchLedger::TakeClosed() { return std::exchange(closed_, {}); }

void BatchLedger::Close(Entries::iterator entry, absl::StatusOr<ShardResult> answer) {
  Entry& batch = entry->second;
  if (batch.not_before != absl::InfinitePast()) --postponed_;
  if (answer.ok()) ++stats_.batches;
  closed_.push_back({std::move(batch.pending), std::move(answer), std::move(batch.batch)});
  batches_.erase(entry);
}

void BatchLedger::GiveUp(Entries::iterator entry, absl::Status status) {
  if (entry->second.wire_id) window_.GiveUp(*entry->second.wire_id);
  Close(entry, std::move(status));
}

// --- time

void BatchLedger::Expire(absl::Time now) {
  bool given_up = window_.AnyGivenUp();
  // All have the same deadline, so the oldest is the first to pass it.
  while (!batches_.empty() && batches_.begin()->second.deadline <= now) {
    GiveUp(batches_.begin(),
           absl::DeadlineExceededError(absl::StrCat("no shards from ", address_, " within ",
                                                    absl::FormatDuration(options_.deadline), ": ",
                                                    WhatStandsInTheWay(batches_.begin()->second))));
    given_up = true;
  }
  if (given_up && window_.SilentAt() <= now) silent_ = true;
}

absl::Time BatchLedger::NextDeadline() const {
  return batches_.empty() ? absl::InfiniteFuture() : batches_.begin()->second.deadline;
}

absl::Time BatchLedger::NextEvent(absl::Time now) const {
  if (batches_.empty() && !tried_) return connect_at_;
  absl::Time next = NextDeadline();
  if (link_ == Link::kDown && !batches_.empty()) next = std::min(next, connect_at_);
  if (!silent_ && window_.AnyGivenUp()) next = std::min(next, window_.SilentAt());
  if (postponed_ == 0 || link_ != Link::kUp) return next;
  for (const auto& [number, entry] : batches_) {
    if (entry.not_before > now) next = std::min(next, entry.not_before);
  }
  return next;
}

std::string BatchLedger::WhatStandsInTheWay(const Entry& entry) const {
  std::string text;
  if (!connected()) {
    if (link_ == Link::kConnecting) text = "still connecting, or asking the server who it is";
    if (!trouble_.empty()) absl::StrAppend(&text, text.empty() ? "" : "; before: ", trouble_);
    if (text.empty()) text = "not connected yet";
  } else if (entry.wire_id) {
    const Sending& sending = *window_.Find(*entry.wire_id);
    text = sending.cursor.complete ? "sent, not answered"
                                   : absl::StrCat("being sent, ", sending.cursor.next_offset,
                                                  " of ", sending.bytes, " bytes written");
  } else if (link_ == Link::kDraining) {
    text = "the server is going down and takes no more";
  } else {
    text = absl::StrCat("waiting for credit: ", window_.size(), " batches of ", window_.bytes(),
                        " bytes under way");
  }
  if (!entry.refusal.empty()) absl::StrAppend(&text, "; refused before with ", entry.refusal);
  if (entry.losses > 0) absl::StrAppend(&text, "; lost before with connections: ", entry.losses);
  return text;
}

// --- connection

bool BatchLedger::WantsConnection(absl::Time now) const {
  return link_ == Link::kDown && connect_at_ <= now && (!tried_ || !batches_.empty());
}

void BatchLedger::Connecting() {
  tried_ = true;
  link_ = Link::kConnecting;
}

void BatchLedger::Connected(const StreamLimits& limits, int64_t max_chunk_bytes) {
  ++stats_.connects;
  tried_ = true;
  link_ = Link::kUp;
  window_.Open(limits, max_chunk_bytes);
}

void BatchLedger::Disconnected(const absl::Status& status, absl::string_view stage,
                               absl::Time now) {
  tried_ = true;
  link_ = Link::kDown;
  trouble_ = silent_ ? "hung up on a server that gave no sign of life"
                     : absl::StrCat(stage, ": ", TextOf(status));
  window_.Clear();
  postponed_ = 0;
  for (auto& [number, entry] : batches_) {
    if (entry.wire_id && !silent_) Lose(&entry);
    entry.wire_id.reset();
    entry.not_before = absl::InfinitePast();  // was asked for by a server that is gone
  }
  silent_ = false;
  connect_at_ = now + backoff_.Next();
  if (IsFinal(status.code())) {
    CloseAll(absl::Status(status.code(), absl::StrCat(address_, ": ", status.message())));
    connect_at_ = now;
  }
  for (auto next = batches_.begin(); next != batches_.end();) {
    const auto entry = next++;
    if (IsLostTooOften(entry->second)) Close(entry, LostTooOften(status));
  }
}

// A server that loses its device refuses the batch, may refuse it once more, and then goes.
void BatchLedger::Lose(Entry* entry) {
  if (std::exchange(entry->lost_with, stats_.connects) != stats_.connects) ++entry->losses;
}

bool BatchLedger::IsLostTooOften(const Entry& entry) const { return entry.losses >= kMostLosses; }

absl::Status BatchLedger::LostTooOften(const absl::Status& last) const {
  return absl::Status(
      last.code(), absl::StrCat(address_, ": this batch was under way when ", kMostLosses,
                                " connections ended or their servers gave up, and may be why; the "
                                "last one with: ",
                                last.message()));
}

void BatchLedger::Drain() {
  if (link_ == Link::kUp) link_ = Link::kDraining;
}

bool BatchLedger::ShouldHangUp() const {
  return silent_ || (link_ == Link::kDraining && !window_.AnyWanted());
}

// --- sending

std::optional<FrameToSend> BatchLedger::NextFrame(absl::Time now) {
  if (!connected()) return std::nullopt;
  window_.Wrote(now);
  if (!window_.HasFrames()) BeginNext(now);
  if (!window_.HasFrames()) return std::nullopt;
  FrameToSend frame = window_.NextFrame();
  if (!frame.cancel) frame.batch = batches_.at(*window_.Find(frame.wire_id)->number).batch;
  return frame;
}

// In the order of Add. One that was refused for a while lets younger ones pass, one that has no
// room does not: it would wait for ever.
void BatchLedger::BeginNext(absl::Time now) {
  if (link_ != Link::kUp) return;
  for (auto& [number, entry] : batches_) {
    if (entry.wire_id || entry.not_before > now) continue;
    const int64_t bytes = entry.batch->total_bytes;
    const bool alone = entry.losses >= kLossesToGoAlone;
    if (!window_.HasRoomFor(bytes, alone)) return;
    if (entry.not_before != absl::InfinitePast()) --postponed_;
    entry.not_before = absl::InfinitePast();
    if (entry.sends++ > 0) ++stats_.resubmitted;
    entry.wire_id = window_.Begin(number, bytes, alone, now);
    return;
  }
}

// --- answers

BatchLedger::Interest BatchLedger::InterestIn(uint64_t wire_id) const {
  const Sending* const sending = window_.Find(wire_id);
  if (sending == nullptr) return Interest::kUnknown;
  return sending->number ? Interest::kWanted : Interest::kGivenUp;
}

void BatchLedger::Answered(uint64_t wire_id, absl::StatusOr<ShardResult> answer) {
  const std::optional<Sending> ended = window_.End(wire_id);
  if (ended) backoff_.Reset();  // the connection is of use
  if (!ended || !ended->number) {
    closed_.push_back({nullptr, std::move(answer), nullptr});
    return;
  }
  const auto entry = batches_.find(*ended->number);
  const absl::Status right =
      answer.ok() ? entry->second.batch->expected.Check(*answer) : answer.status();
  if (right.ok()) return Close(entry, std::move(answer));
  closed_.push_back({nullptr, std::move(answer), nullptr});
  Close(entry, right);
}

void BatchLedger::Refused(uint64_t wire_id, const BatchError& error, absl::Time now) {
  const std::optional<Sending> ended = window_.End(wire_id);
  if (!ended || !ended->number) return;
  const auto found = batches_.find(*ended->number);
  Entry& entry = found->second;
  entry.wire_id.reset();
  if (!error.retry_after_ms) return Close(found, error.status);
  if (absl::IsUnavailable(error.status)) Lose(&entry);
  if (IsLostTooOften(entry)) return Close(found, LostTooOften(error.status));
  // What a refusal costs is the bytes that were on their way already.
  const absl::Duration wait =
      std::max(absl::Milliseconds(*error.retry_after_ms), Backoff::After(entry.refusals++));
  const absl::Time again = now + backoff_.Spread(wait);
  if (again >= entry.deadline) {
    return Close(
        found, absl::Status(error.status.code(),
                            absl::StrCat(error.status.message(), "; refused ", entry.refusals,
                                         " times, the next try, after ", absl::FormatDuration(wait),
                                         ", would be past its deadline")));
  }
  entry.refusal = TextOf(error.status);
  entry.not_before = again;
  ++postponed_;
}

void BatchLedger::Fail(uint64_t wire_id, const absl::Status& status) {
  const Sending* const sending = window_.Find(wire_id);
  if (sending == nullptr || !sending->number) return;
  GiveUp(batches_.find(*sending->number), status);
}

}  // namespace cpshard
