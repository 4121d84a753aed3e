#include "server/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "server/address.h"

namespace cpshard {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

absl::Status CannotListen(absl::string_view address, absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on '", address, "': ", why,
                   "; choose an address of this machine that is not in use"));
}

absl::StatusOr<Addresses> Resolve(const std::string& host, const std::string& port) {
  const addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return CannotListen(absl::StrCat(host, ":", port), gai_strerror(error));
  return Addresses(found, &freeaddrinfo);
}

// Both families keep the port in one place.
in_port_t& PortOf(sockaddr_storage& address) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// 0, or errno. `port` (network order): 0 becomes the one that the system chose.
int ListenTcp(const addrinfo& info, in_port_t& port, OwnedFd& listening) {
  OwnedFd fd(socket(info.ai_family, kSocketFlags, 0));
  if (!fd.ok()) return errno;
  // No SO_REUSEPORT: a second server on the port must fail loudly.
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (info.ai_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, std::min<size_t>(info.ai_addrlen, sizeof address));
  PortOf(address) = port;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, info.ai_addrlen) != 0) return errno;
  if (listen(fd.get(), SOMAXCONN) != 0) return errno;
  socklen_t size = sizeof address;
  if (getsockname(fd.get(), generic, &size) != 0) return errno;
  port = PortOf(address);
  listening = std::move(fd);
  return 0;
}

// Whether somebody accepts there; a path that a killed server left does not answer.
bool IsServed(const sockaddr_un& address) {
  const OwnedFd fd(socket(AF_UNIX, kSocketFlags, 0));
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  return connect(fd.get(), generic, sizeof address) == 0 || errno == EAGAIN;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& address,
                                                         int64_t socket_mode) {
  CPSHARD_RETURN_IF_ERROR(CheckAddress(address));
  std::unique_ptr<Listener> listener(new Listener);
  if (const auto path = UnixPath(address)) {
    CPSHARD_RETURN_IF_ERROR(listener->OpenUnix(*path, socket_mode));
  } else {
    const size_t colon = address.rfind(':');
    const std::string host = address.substr(0, colon);
    CPSHARD_RETURN_IF_ERROR(listener->OpenTcp(host, address.substr(colon + 1)));
  }
  return listener;
}

Listener::~Listener() {
  if (!path_.empty()) unlink(path_.c_str());
}

absl::Status Listener::OpenUnix(const std::string& path, int64_t socket_mode) {
  CPSHARD_ASSIGN_OR_RETURN(lock_, SocketLock::Acquire(path));
  OwnedFd fd(socket(AF_UNIX, kSocketFlags, 0));
  if (!fd.ok()) return CannotListen(path, std::strerror(errno));
  sockaddr_un address{.sun_family = AF_UNIX};
  std::memcpy(address.sun_path, path.data(), path.size());  // Acquire checked the length
  if (IsServed(address)) {
    return absl::FailedPreconditionError(
        absl::StrCat("another program listens on '", path, "'; stop it or choose another path"));
  }
  unlink(path.c_str());
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return CannotListen(path, std::strerror(errno));
  }
  path_ = path;
  if (chmod(path.c_str(), static_cast<mode_t>(socket_mode)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot set the mode of '", path, "'"));
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return CannotListen(path, std::strerror(errno));
  sockets_.push_back(std::move(fd));
  address_ = absl::StrCat("unix:", path);
  return absl::OkStatus();
}

absl::Status Listener::OpenTcp(const std::string& host, const std::string& port) {
  const bool is_bracketed = host.front() == '[';
  CPSHARD_ASSIGN_OR_RETURN(const Addresses found,
                           Resolve(is_bracketed ? host.substr(1, host.size() - 2) : host, port));
  // A port that the system chose for the first address may be in use on the next.
  constexpr int kAttempts = 8;
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    sockets_.clear();
    in_port_t bound = PortOf(reinterpret_cast<sockaddr_storage&>(*found->ai_addr));
    const bool is_any_port = bound == 0;
    for (const addrinfo* info = found.get(); info != nullptr; info = info->ai_next) {
      OwnedFd fd;
      error = ListenTcp(*info, bound, fd);
      if (error == EADDRINUSE) break;
      // A name may have addresses that this machine lacks, such as ::1.
      if (error == 0) sockets_.push_back(std::move(fd));
    }
    if (error != EADDRINUSE && !sockets_.empty()) {
      address_ = absl::StrCat(host, ":", ntohs(bound));
      return absl::OkStatus();
    }
    if (!is_any_port || error != EADDRINUSE) break;
  }
  // A machine without IPv6: all addresses are those of IPv4.
  if (error == EAFNOSUPPORT && host == "[::]") return OpenTcp("0.0.0.0", port);
  return CannotListen(absl::StrCat(host, ":", port), std::strerror(error));
}

}  // namespace cpshard
