// A sleep that other threads and a descriptor can end.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cpshard {

class WakeupFd {
 public:
  // ResourceExhausted and others: the system has no descriptor.
  static absl::StatusOr<std::unique_ptr<WakeupFd>> Make();
  ~WakeupFd();

  WakeupFd(const WakeupFd&) = delete;
  WakeupFd& operator=(const WakeupFd&) = delete;

  // Ends the sleep that is, or else the next one. Thread-safe; does not block.
  void Wake();

  // Until Wake, or `patience` has passed, or `fd` (if it is not negative) can be written or has
  // failed. May end early. One thread at a time.
  void Sleep(int fd, absl::Duration patience);

 private:
  explicit WakeupFd(int event) : event_(event) {}

  const int event_;
};

}  // namespace cpshard
