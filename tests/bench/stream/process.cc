#include "tests/bench/stream/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kCallBytes = int64_t{1} << 20;

std::function<void()>& CleanUp() {
  static std::function<void()>& clean_up = *new std::function<void()>();
  return clean_up;
}

}  // namespace

void Fail(const std::string& text) {
  std::fprintf(stderr, "error: %s\n", text.c_str());
  std::fflush(stdout);
  if (CleanUp()) CleanUp()();
  _exit(1);  // not exit: threads of gRPC may be running
}

void WhenFailing(std::function<void()> clean_up) { CleanUp() = std::move(clean_up); }

Process Process::Fork(const std::function<void(int fd)>& body) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    Fail(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) Fail(absl::StrCat("fork: ", std::strerror(errno)));
  if (pid > 0) {
    close(ends[1]);
    return Process(pid, ends[0]);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  signal(SIGPIPE, SIG_IGN);
  close(ends[0]);
  WhenFailing(nullptr);
  body(ends[1]);
  _exit(0);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), fd_(std::exchange(other.fd_, -1)) {}

Process::~Process() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(fd_);
}

void SendAll(int fd, const void* data, int64_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(fd, next, std::min(size, kCallBytes), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) Fail(absl::StrCat("send: ", std::strerror(errno)));
    next += sent;
    size -= sent;
  }
}

bool ReceiveAll(int fd, void* data, int64_t size) {
  char* next = static_cast<char*>(data);
  const char* const begin = next;
  while (size > 0) {
    const ssize_t received = recv(fd, next, std::min(size, kCallBytes), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) Fail(absl::StrCat("recv: ", std::strerror(errno)));
    if (received == 0 && next == begin) return false;
    if (received == 0) Fail("the other side closed in the middle of a message");
    next += received;
    size -= received;
  }
  return true;
}

void Obey(int fd, const std::function<Report(const Order&)>& run) {
  Order order;
  while (ReceiveAll(fd, &order, sizeof order)) Send(fd, run(order));
}

Report RunTrips(const Order& order, const std::function<void()>& trip) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Report report;
  while (report.trips < order.min_trips || report.seconds < order.seconds) {
    trip();
    ++report.trips;
    report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return report;
}

}  // namespace cpshard::bench
