#include "client/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace cpshard {
namespace {

// The most that a default Linux grants; the kernel doubles it. The 208 KB that a unix socket has
// otherwise cost a fifth of the throughput. TCP grows by itself.
constexpr int kUnixBufferBytes = 212'992;

// A peer that takes nothing for so long is gone, as keepalive would have it.
constexpr int kTcpPatienceMs = 10'000;

// Waits for a connection that is on its way. 0, or what went wrong.
int AwaitConnected(int fd, absl::Duration patience) {
  pollfd wanted{.fd = fd, .events = POLLOUT};
  const int ready = poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)) + 1);
  if (ready == 0) return ETIMEDOUT;
  if (ready < 0) return errno;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// A descriptor, or what went wrong, negated.
int Connect(const sockaddr* name, socklen_t size, absl::Duration patience) {
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
  if (error == EINPROGRESS) error = AwaitConnected(fd, patience);
  if (error == 0) return fd;
  close(fd);
  return -error;
}

absl::StatusOr<int> Connected(int fd, const std::string& address) {
  if (fd >= 0) return fd;
  return absl::UnavailableError(absl::StrCat("connect to ", address, ": ", std::strerror(-fd)));
}

absl::StatusOr<int> ConnectUnix(absl::string_view path, const std::string& address,
                                absl::Duration patience) {
  absl::ConsumePrefix(&path, "//");  // unix:///path
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof name.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("unix socket path '", path, "' has ",
                                                   path.size(), " bytes; 1 ... ",
                                                   sizeof name.sun_path - 1, " are possible"));
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  return Connected(Connect(reinterpret_cast<const sockaddr*>(&name), sizeof name, patience),
                   address);
}

}  // namespace

absl::StatusOr<int> ConnectSocket(const std::string& address, absl::Duration patience) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:")) return ConnectUnix(path, address, patience);

  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address, "' is neither host:port nor unix:/path"));
  }
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");  // [::1]:7070
  const addrinfo wanted{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int unknown =
      getaddrinfo(std::string(host).c_str(), address.substr(colon + 1).c_str(), &wanted, &found);
  if (unknown != 0) {
    return absl::UnavailableError(absl::StrCat(address, ": ", gai_strerror(unknown)));
  }
  int fd = -EADDRNOTAVAIL;
  for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = Connect(at->ai_addr, at->ai_addrlen, patience);
  }
  freeaddrinfo(found);
  return Connected(fd, address);
}

}  // namespace cpshard
