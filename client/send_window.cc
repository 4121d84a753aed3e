#include "client/send_window.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace cpshard {
namespace {

// A server that has given no sign of life for so long is not waited for, once somebody has given up
// on it: its connection holds the bytes of what was being sent.
constexpr absl::Duration kSilence = absl::Seconds(10);

int64_t LimitOrNone(int64_t stated) {
  return stated > 0 ? stated : std::numeric_limits<int64_t>::max();
}

}  // namespace

void SendWindow::Open(const StreamLimits& limits, int64_t max_chunk_bytes) {
  Clear();
  limits_ = {LimitOrNone(limits.max_inflight_bytes), LimitOrNone(limits.max_inflight_batches)};
  chunk_bytes_ = ChunkBytes(max_chunk_bytes);
}

void SendWindow::Clear() {
  sendings_.clear();
  cancels_.clear();
  current_.reset();
  bytes_ = 0;
  writes_body_ = false;
}

// --- writing

bool SendWindow::HasRoomFor(int64_t bytes, bool alone) const {
  if (sendings_.empty()) return true;
  if (alone || sendings_.begin()->second.alone) return false;
  return size() < std::min(max_batches_, limits_.max_inflight_batches) &&
         bytes <= limits_.max_inflight_bytes - bytes_;
}

uint64_t SendWindow::Begin(uint64_t number, int64_t bytes, bool alone, absl::Time now) {
  if (sendings_.empty()) heard_ = now;
  const uint64_t wire_id = next_wire_id_++;
  sendings_[wire_id] = {.number = number, .bytes = bytes, .alone = alone};
  bytes_ += bytes;
  current_ = wire_id;
  return wire_id;
}

FrameToSend SendWindow::NextFrame() {
  if (!cancels_.empty()) {
    FrameToSend cancel = std::move(cancels_.front());
    cancels_.erase(cancels_.begin());
    return cancel;
  }
  Sending& sending = sendings_.at(*current_);
  const FrameToSend frame = sending.cursor.Next(*current_, sending.bytes, chunk_bytes_, checksums_);
  writes_body_ = frame.seq > 0 && frame.size > 0;
  if (frame.last) current_.reset();
  return frame;
}

// The sockets take small frames from a process that stands still, but not the body of a large batch
// for long.
void SendWindow::Wrote(absl::Time now) {
  if (std::exchange(writes_body_, false)) heard_ = now;
}

void SendWindow::GiveUp(uint64_t wire_id) {
  sendings_.at(wire_id).number.reset();
  StopWriting(wire_id);
}

// Tells the server that no frame of it will follow.
void SendWindow::StopWriting(uint64_t wire_id) {
  const Sending& sending = sendings_.at(wire_id);
  if (current_ == wire_id) current_.reset();
  cancels_.push_back({.wire_id = wire_id,
                      .seq = sending.cursor.next_seq,
                      .offset = sending.cursor.next_offset,
                      .cancel = true});
}

std::optional<Sending> SendWindow::End(uint64_t wire_id) {
  const auto sending = sendings_.find(wire_id);
  if (sending == sendings_.end()) return std::nullopt;
  if (sending->second.number && !sending->second.cursor.complete) StopWriting(wire_id);
  const Sending ended = sending->second;
  bytes_ -= ended.bytes;
  sendings_.erase(sending);
  return ended;
}

// --- looking

const Sending* SendWindow::Find(uint64_t wire_id) const {
  const auto sending = sendings_.find(wire_id);
  return sending == sendings_.end() ? nullptr : &sending->second;
}

bool SendWindow::AnyWanted() const {
  return std::any_of(sendings_.begin(), sendings_.end(),
                     [](const auto& sending) { return sending.second.number.has_value(); });
}

bool SendWindow::AnyGivenUp() const {
  return std::any_of(sendings_.begin(), sendings_.end(),
                     [](const auto& sending) { return !sending.second.number.has_value(); });
}

absl::Time SendWindow::SilentAt() const {
  return sendings_.empty() ? absl::InfiniteFuture() : heard_ + kSilence;
}

}  // namespace cpshard
