#include "core/exec/device/bounce.h"

#include <algorithm>
#include <cstring>

#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kClose = 256;  // a gap that is cheaper to copy than to begin anew

}  // namespace

// How many bytes that begin at `device` the half now in use still takes; sends it off and turns to
// the other one where it takes none.
absl::StatusOr<int64_t> Bounce::Room(uint64_t device, absl::Status (Bounce::*send)()) {
  CPSHARD_RETURN_IF_ERROR(Empty(now_));
  Half* half = &halves_[now_];
  const uint64_t end = half->device + half->used;
  if (half->used > 0 && (device < end || device - end > kClose ||
                         static_cast<int64_t>(device - half->device) >= half_)) {
    CPSHARD_RETURN_IF_ERROR((this->*send)());
    CPSHARD_RETURN_IF_ERROR(Empty(now_));
    half = &halves_[now_];
  }
  if (half->used == 0) half->device = device;
  return half_ - static_cast<int64_t>(device - half->device);
}

absl::Status Bounce::In(uint64_t device, const std::byte* host, int64_t bytes) {
  while (bytes > 0) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t room, Room(device, &Bounce::Flush));
    Half& half = halves_[now_];
    const int64_t at = static_cast<int64_t>(device - half.device), take = std::min(bytes, room);
    std::memcpy(MemoryOf(now_) + at, host, take);
    half.used = at + take;
    device += take;
    host += take;
    bytes -= take;
  }
  return absl::OkStatus();
}

absl::Status Bounce::Flush() {
  const Half& half = halves_[now_];
  if (half.used == 0 || half.busy) return absl::OkStatus();
  CPSHARD_RETURN_IF_ERROR(device_.CopyIn(half.device, MemoryOf(now_), half.used));
  return Next();
}

absl::Status Bounce::Out(std::byte* host, uint64_t device, int64_t bytes) {
  while (bytes > 0) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t room, Room(device, &Bounce::Fetch));
    Half& half = halves_[now_];
    const int64_t at = static_cast<int64_t>(device - half.device), take = std::min(bytes, room);
    half.parts.push_back({host, at, take});
    half.used = at + take;
    device += take;
    host += take;
    bytes -= take;
  }
  return absl::OkStatus();
}

absl::Status Bounce::Fetch() {
  const Half& half = halves_[now_];
  if (half.used == 0 || half.busy) return absl::OkStatus();
  CPSHARD_RETURN_IF_ERROR(device_.CopyOut(MemoryOf(now_), half.device, half.used));
  return Next();
}

absl::Status Bounce::Drain() {
  CPSHARD_RETURN_IF_ERROR(Fetch());
  CPSHARD_RETURN_IF_ERROR(Empty(now_));
  return Empty(1 - now_);
}

void Bounce::Reset() {
  halves_.assign(2, {});
  now_ = 0;
}

// Waits for the half where it is under way; what it holds for the host is written.
absl::Status Bounce::Empty(int number) {
  Half& half = halves_[number];
  if (!half.busy) return absl::OkStatus();
  CPSHARD_RETURN_IF_ERROR(device_.Await(number));
  for (const Part& part : half.parts) {
    std::memcpy(part.host, MemoryOf(number) + part.at, part.bytes);
  }
  half = {};
  return absl::OkStatus();
}

absl::Status Bounce::Next() {
  CPSHARD_RETURN_IF_ERROR(device_.Mark(now_));
  halves_[now_].busy = true;
  now_ = 1 - now_;
  return absl::OkStatus();
}

}  // namespace cpshard
