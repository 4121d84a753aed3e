#include "client/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard {
namespace {

using Clock = std::chrono::steady_clock;

// The most that a default Linux grants; the kernel doubles it. The 208 KB that a unix socket has
// otherwise cost a fifth of the throughput. TCP grows by itself.
constexpr int kUnixBufferBytes = 212'992;

// A peer that takes nothing for so long is gone, as keepalive would have it.
constexpr int kTcpPatienceMs = 10'000;

// Of one address: the first two repetitions of a lost SYN come after 1 s and 3 s.
constexpr absl::Duration kConnectTime = absl::Seconds(5);

// Waits for a connection that is on its way. 0, or what went wrong.
int AwaitConnected(int fd, Rest rest) {
  const Clock::time_point begin = Clock::now();
  while (true) {
    pollfd wanted{.fd = fd, .events = POLLOUT};
    const int ready = poll(&wanted, 1, 0);
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0) break;
    const absl::Duration left = kConnectTime - absl::FromChrono(Clock::now() - begin);
    if (left <= absl::ZeroDuration()) return ETIMEDOUT;
    if (!rest(fd, left)) return ECANCELED;
  }
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// A descriptor, or what went wrong, negated.
int Connect(const sockaddr* name, socklen_t size, Rest rest) {
  const int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  if (name->sa_family == AF_UNIX) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixBufferBytes, sizeof kUnixBufferBytes);
  } else {
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kTcpPatienceMs, sizeof kTcpPatienceMs);
  }
  int error = connect(fd, name, size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = AwaitConnected(fd, rest);
  if (error == 0) return fd;
  close(fd);
  return -error;
}

int ConnectUnix(const std::string& path, Rest rest) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), path.size());  // Parse has checked its length
  return Connect(reinterpret_cast<const sockaddr*>(&name), sizeof name, rest);
}

absl::StatusOr<int> ConnectTcp(const Address& address, Rest rest) {
  const addrinfo wanted{
      .ai_flags = AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found);
  if (unknown != 0) {
    return absl::UnavailableError(absl::StrCat(address.text, ": ", gai_strerror(unknown)));
  }
  int fd = -EADDRNOTAVAIL;
  for (const addrinfo* at = found; at != nullptr && fd < 0 && fd != -ECANCELED; at = at->ai_next) {
    fd = Connect(at->ai_addr, at->ai_addrlen, rest);
  }
  freeaddrinfo(found);
  return fd;
}

}  // namespace

absl::StatusOr<int> ConnectSocket(const Address& address, Rest rest) {
  const absl::StatusOr<int> fd =
      address.is_unix() ? ConnectUnix(address.path, rest) : ConnectTcp(address, rest);
  if (!fd.ok() || *fd >= 0) return fd;
  const std::string text = absl::StrCat("connect to ", address.text, ": ", std::strerror(-*fd));
  return *fd == -ECANCELED ? absl::CancelledError(text) : absl::UnavailableError(text);
}

}  // namespace cpshard
