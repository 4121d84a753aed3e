// The processes of a run, and what they say to each other: plain values over a socket pair. Errors
// end the process with a line on standard error.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tests/bench/stream/token_batch.h"

namespace cpshard::bench {

[[noreturn]] void Fail(const std::string& text);

// What Fail does first, in this process and not in children forked later.
void WhenFailing(std::function<void()> clean_up);

// A child. Killed with the object, and when this process dies. Move-only.
class Process {
 public:
  // `body` runs in the child with its end of the socket pair; the child ends when it returns. Only
  // for a process without threads.
  static Process Fork(const std::function<void(int fd)>& body);

  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  int fd() const { return fd_; }

 private:
  Process(pid_t pid, int fd) : pid_(pid), fd_(fd) {}

  pid_t pid_;
  int fd_;
};

// All of `size`, in calls of at most 1 MB: one huge call is slower on loopback.
void SendAll(int fd, const void* data, int64_t size);
// False: the other side has closed, before the first byte.
bool ReceiveAll(int fd, void* data, int64_t size);

template <typename T>
void Send(int fd, const T& value) {
  SendAll(fd, &value, sizeof value);
}
template <typename T>
T Receive(int fd) {
  T value;
  if (!ReceiveAll(fd, &value, sizeof value)) Fail("a process of the benchmark has ended");
  return value;
}

// What a client is told to do: trips for so many seconds, but at least so many.
struct Order {
  TokenShape shape;
  double seconds = 0;
  int64_t min_trips = 1;
  int64_t in_flight = 1;  // for those that can have several
};
struct Report {
  int64_t trips = 0;
  double seconds = 0;  // wall time of all of them
};

// Carries out orders until the other side closes.
void Obey(int fd, const std::function<Report(const Order&)>& run);

// Wall time of `trip`, one after the other.
Report RunTrips(const Order& order, const std::function<void()>& trip);

}  // namespace cpshard::bench
