#include "client/batch_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace cpshard {
namespace {

constexpr int64_t kAlignment = 64;  // of the end of a body

// A server that answers nothing for so long, and lets a batch pass its deadline, is not waited for:
// its connection holds the bytes of what was being sent.
constexpr absl::Duration kSilence = absl::Seconds(10);

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
    : address_(std::move(address)), options_(options), backoff_(seed) {}

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
  if (const std::optional<uint64_t> wire_id = entry->second.wire_id) {
    sendings_.at(*wire_id).number.reset();
    StopSending(*wire_id);
  }
  Close(entry, std::move(status));
}

// --- time

void BatchLedger::Expire(absl::Time now) {
  // All have the same deadline, so the oldest is the first to pass it.
  while (!batches_.empty() && batches_.begin()->second.deadline <= now) {
    const Entry& entry = batches_.begin()->second;
    if (entry.wire_id && now - heard_ >= kSilence) silent_ = true;
    GiveUp(batches_.begin(),
           absl::DeadlineExceededError(absl::StrCat("no shards from ", address_, " within ",
                                                    absl::FormatDuration(options_.deadline), ": ",
                                                    WhatStandsInTheWay(entry, now))));
  }
}

absl::Time BatchLedger::NextDeadline() const {
  return batches_.empty() ? absl::InfiniteFuture() : batches_.begin()->second.deadline;
}

absl::Time BatchLedger::NextEvent(absl::Time now) const {
  if (batches_.empty() && !tried_) return connect_at_;
  absl::Time next = NextDeadline();
  if (link_ == Link::kDown && !batches_.empty()) next = std::min(next, connect_at_);
  if (postponed_ == 0 || link_ != Link::kUp) return next;
  for (const auto& [number, entry] : batches_) {
    if (entry.not_before > now) next = std::min(next, entry.not_before);
  }
  return next;
}

std::string BatchLedger::WhatStandsInTheWay(const Entry& entry, absl::Time now) const {
  std::string text;
  if (link_ == Link::kDown) {
    text = trouble_.empty() ? "not connected yet" : trouble_;
  } else if (entry.wire_id) {
    const Sending& sending = sendings_.at(*entry.wire_id);
    text = sending.complete ? "sent, not answered"
                            : absl::StrCat("being sent, ", sending.next_offset, " of ",
                                           sending.bytes, " bytes written");
  } else if (link_ == Link::kDraining) {
    text = "the server is going down and takes no more";
  } else if (entry.not_before > now) {
    text = "waiting to be sent again";
  } else {
    text = absl::StrCat("waiting for credit: ", sendings_.size(), " batches of ", bytes_under_way_,
                        " bytes under way");
  }
  if (!entry.refusal.empty()) absl::StrAppend(&text, "; refused before with ", entry.refusal);
  return text;
}

// --- connection

bool BatchLedger::WantsConnection(absl::Time now) const {
  return link_ == Link::kDown && connect_at_ <= now && (!tried_ || !batches_.empty());
}

void BatchLedger::Connected(const StreamLimits& limits, int64_t max_chunk_bytes) {
  ++stats_.connects;
  tried_ = true;
  link_ = Link::kUp;
  limits_ = limits;
  chunk_bytes_ = kChunkBytes;
  if (max_chunk_bytes >= kAlignment) {
    chunk_bytes_ = std::min(kChunkBytes, max_chunk_bytes / kAlignment * kAlignment);
  }
}

void BatchLedger::Disconnected(const absl::Status& status, absl::string_view stage,
                               absl::Time now) {
  tried_ = true;
  link_ = Link::kDown;
  sendings_.clear();
  cancels_.clear();
  current_.reset();
  bytes_under_way_ = 0;
  silent_ = false;
  postponed_ = 0;
  for (auto& [number, entry] : batches_) {
    entry.wire_id.reset();
    entry.not_before = absl::InfinitePast();  // was asked for by a server that is gone
  }
  trouble_ = absl::StrCat(stage, ": ", TextOf(status));
  if (IsFinal(status.code())) {
    CloseAll(absl::Status(status.code(), absl::StrCat(address_, ": ", status.message())));
    connect_at_ = now;
  } else {
    connect_at_ = now + backoff_.Next();
  }
}

void BatchLedger::Drain() {
  if (link_ == Link::kUp) link_ = Link::kDraining;
}

bool BatchLedger::ShouldHangUp() const {
  if (link_ != Link::kDraining) return silent_;
  return silent_ || std::none_of(sendings_.begin(), sendings_.end(), [](const auto& sending) {
           return sending.second.number.has_value();
         });
}

// --- sending

std::optional<FrameToSend> BatchLedger::NextFrame(absl::Time now) {
  if (link_ == Link::kDown) return std::nullopt;
  if (!cancels_.empty()) {
    FrameToSend cancel = std::move(cancels_.front());
    cancels_.erase(cancels_.begin());
    return cancel;
  }
  if (!current_) current_ = BeginNext(now);
  if (!current_) return std::nullopt;
  return Continue(*current_);
}

bool BatchLedger::HasRoomFor(int64_t bytes) const {
  if (sendings_.empty()) return true;  // one batch always goes
  const int64_t batches = static_cast<int64_t>(sendings_.size()) + 1;
  return batches <= std::min(options_.max_inflight_batches, limits_.max_inflight_batches) &&
         bytes <= limits_.max_inflight_bytes - bytes_under_way_;
}

// In the order of Add. One that was refused for a while lets younger ones pass, one that has no
// room does not: it would wait for ever.
std::optional<uint64_t> BatchLedger::BeginNext(absl::Time now) {
  if (link_ != Link::kUp) return std::nullopt;
  for (auto& [number, entry] : batches_) {
    if (entry.wire_id || entry.not_before > now) continue;
    if (!HasRoomFor(entry.batch->total_bytes)) return std::nullopt;
    if (entry.not_before != absl::InfinitePast()) --postponed_;
    entry.not_before = absl::InfinitePast();
    if (entry.sends++ > 0) ++stats_.resubmitted;
    entry.wire_id = next_wire_id_;
    if (sendings_.empty()) heard_ = now;
    sendings_[next_wire_id_] = {.number = number, .bytes = entry.batch->total_bytes};
    bytes_under_way_ += entry.batch->total_bytes;
    return next_wire_id_++;
  }
  return std::nullopt;
}

FrameToSend BatchLedger::Continue(uint64_t wire_id) {
  Sending& sending = sendings_.at(wire_id);
  FrameToSend frame{.wire_id = wire_id, .seq = sending.next_seq, .offset = sending.next_offset};
  frame.size = std::min(chunk_bytes_, sending.bytes - sending.next_offset);
  // With checksums a last frame without a body carries the one of the last body.
  const bool ends = sending.next_offset + frame.size == sending.bytes;
  frame.last = ends && (!options_.checksums || frame.size == 0);
  frame.batch = batches_.at(*sending.number).batch;
  ++sending.next_seq;
  sending.next_offset += frame.size;
  sending.complete = frame.last;
  if (frame.last) current_.reset();
  return frame;
}

// Tells the server that no frame of it will follow.
void BatchLedger::StopSending(uint64_t wire_id) {
  const Sending& sending = sendings_.at(wire_id);
  if (current_ == wire_id) current_.reset();
  cancels_.push_back(
      {.wire_id = wire_id, .seq = sending.next_seq, .offset = sending.next_offset, .cancel = true});
}

// --- answers

BatchLedger::Interest BatchLedger::InterestIn(uint64_t wire_id) const {
  const auto sending = sendings_.find(wire_id);
  if (sending == sendings_.end()) return Interest::kUnknown;
  return sending->second.number ? Interest::kWanted : Interest::kGivenUp;
}

std::optional<BatchLedger::Sending> BatchLedger::EndSending(uint64_t wire_id) {
  const auto sending = sendings_.find(wire_id);
  if (sending == sendings_.end()) return std::nullopt;
  backoff_.Reset();  // the connection is of use
  if (sending->second.number && !sending->second.complete) StopSending(wire_id);
  const Sending ended = sending->second;
  bytes_under_way_ -= ended.bytes;
  sendings_.erase(sending);
  return ended;
}

void BatchLedger::Answered(uint64_t wire_id, absl::StatusOr<ShardResult> answer) {
  const std::optional<Sending> ended = EndSending(wire_id);
  if (ended && ended->number) Close(batches_.find(*ended->number), std::move(answer));
}

void BatchLedger::Refused(uint64_t wire_id, const BatchError& error, absl::Time now) {
  const std::optional<Sending> ended = EndSending(wire_id);
  if (!ended || !ended->number) return;
  const auto found = batches_.find(*ended->number);
  Entry& entry = found->second;
  entry.wire_id.reset();
  if (!error.retry_after_ms) return Close(found, error.status);
  const absl::Time again = now + backoff_.Spread(absl::Milliseconds(*error.retry_after_ms));
  if (again >= entry.deadline) {
    return Close(found, absl::Status(error.status.code(),
                                     absl::StrCat(error.status.message(), "; it might succeed in ",
                                                  *error.retry_after_ms,
                                                  " ms, which is past its deadline")));
  }
  entry.refusal = TextOf(error.status);
  entry.not_before = again;
  ++postponed_;
}

void BatchLedger::Fail(uint64_t wire_id, const absl::Status& status) {
  const auto sending = sendings_.find(wire_id);
  if (sending == sendings_.end() || !sending->second.number) return;
  GiveUp(batches_.find(*sending->second.number), status);
}

}  // namespace cpshard
