#include "client/wakeup_fd.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"

namespace cpshard {

absl::StatusOr<std::unique_ptr<WakeupFd>> WakeupFd::Make() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) return absl::ErrnoToStatus(errno, "no descriptor for a stream's wake-ups");
  return std::unique_ptr<WakeupFd>(new WakeupFd(event));
}

WakeupFd::~WakeupFd() { close(event_); }

void WakeupFd::Wake() {
  const uint64_t one = 1;
  // It fails only when 2^64 wake-ups wait: then it wakes as well.
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);
}

void WakeupFd::Sleep(int fd, absl::Duration patience) {
  pollfd wanted[] = {{.fd = event_, .events = POLLIN}, {.fd = fd, .events = POLLOUT}};
  const bool for_ever = patience == absl::InfiniteDuration();
  const timespec limit =
      absl::ToTimespec(std::clamp(patience, absl::ZeroDuration(), absl::Hours(24)));
  ppoll(wanted, 2, for_ever ? nullptr : &limit, nullptr);  // a negative fd is passed over
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(event_, &count, sizeof count);
}

}  // namespace cpshard
