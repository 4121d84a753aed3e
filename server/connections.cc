#include "server/connections.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard {
namespace {

void ShutBothWays(int fd) {
  // So that the kernel, too, drops what is queued, rather than offer it to a peer that never reads.
  const linger drop = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &drop, sizeof drop);
  shutdown(fd, SHUT_RDWR);
}

std::string DescribeProcess(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "";
  return absl::StrCat("pid ", peer.pid, ", uid ", peer.uid);
}

std::string DescribePeer(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const name = reinterpret_cast<sockaddr*>(&storage);
  if (getpeername(fd, name, &size) != 0) return "";
  if (storage.ss_family == AF_UNIX) return DescribeProcess(fd);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(name, size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  const bool v6 = storage.ss_family == AF_INET6;
  return absl::StrCat(v6 ? "[" : "", host, v6 ? "]:" : ":", port);
}

}  // namespace

Connections::Connections() : hung_up_(epoll_create1(EPOLL_CLOEXEC)) {}

absl::Status Connections::Add(int fd) {
  OwnedFd ours(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!ours.ok()) return absl::ErrnoToStatus(errno, "no second descriptor");
  absl::MutexLock lock(&mutex_);
  Forget(fd);  // the last socket of that number, closed but not reaped yet
  epoll_event event{.events = EPOLLET, .data = {.fd = fd}};  // hang-ups come unasked
  if (epoll_ctl(hung_up_.get(), EPOLL_CTL_ADD, ours.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "no place to watch it from");
  }
  ours_.emplace(fd, std::move(ours));
  return absl::OkStatus();
}

void Connections::Reap() {
  std::array<epoll_event, 64> events;
  absl::MutexLock lock(&mutex_);
  const int count = epoll_wait(hung_up_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    // An error that ends a connection hangs up, too; a peer that has only stopped to write does
    // not.
    if ((events[i].events & EPOLLHUP) != 0) Forget(events[i].data.fd);
  }
}

void Connections::Shut(int fd) {
  absl::MutexLock lock(&mutex_);
  const auto found = ours_.find(fd);
  if (found != ours_.end()) ShutBothWays(found->second.get());
}

void Connections::ShutAll() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [fd, ours] : ours_) ShutBothWays(ours.get());
}

std::string Connections::Describe(int fd) const {
  absl::MutexLock lock(&mutex_);
  const auto found = ours_.find(fd);
  return found == ours_.end() ? "" : DescribePeer(found->second.get());
}

int64_t Connections::size() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(ours_.size());
}

void Connections::Forget(int fd) {
  const auto found = ours_.find(fd);
  if (found == ours_.end()) return;
  // Closing ours is not enough: epoll watches the socket, which gRPC may still hold.
  epoll_ctl(hung_up_.get(), EPOLL_CTL_DEL, found->second.get(), nullptr);
  ours_.erase(found);
}

}  // namespace cpshard
