// Plain sockets as clients of a server under test.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/owned_fd.h"

namespace cpshard {

constexpr absl::Duration kPatience = absl::Seconds(10);

template <typename Condition>
bool Eventually(Condition condition, absl::Duration patience = kPatience) {
  for (const absl::Time end = absl::Now() + patience; absl::Now() < end;) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

inline std::string TempPath(const char* name) {
  return absl::StrCat(::testing::TempDir(), "/", name);
}

inline int PortOf(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

// A connected socket, or one that is not ok(). TCP: to the port of `address` on `host`.
inline OwnedFd Connect(const std::string& address, const std::string& host = "127.0.0.1") {
  absl::string_view path = address;
  sockaddr_storage storage{};
  if (absl::ConsumePrefix(&path, "unix:")) {
    auto& name = reinterpret_cast<sockaddr_un&>(storage);
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof name.sun_path);
  } else if (host.find(':') != std::string::npos) {
    auto& name = reinterpret_cast<sockaddr_in6&>(storage);
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(PortOf(address));
    inet_pton(AF_INET6, host.c_str(), &name.sin6_addr);
  } else {
    auto& name = reinterpret_cast<sockaddr_in&>(storage);
    name.sin_family = AF_INET;
    name.sin_port = htons(PortOf(address));
    inet_pton(AF_INET, host.c_str(), &name.sin_addr);
  }
  OwnedFd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const name = reinterpret_cast<const sockaddr*>(&storage);
  if (connect(fd.get(), name, sizeof(sockaddr_un)) != 0) return OwnedFd();
  return fd;
}

// Whether the other side has ended the connection, with an error or without.
inline bool IsEnded(const OwnedFd& fd) {
  pollfd watched{fd.get(), POLLIN};
  char byte;
  return poll(&watched, 1, absl::ToInt64Milliseconds(kPatience)) == 1 &&
         recv(fd.get(), &byte, 1, 0) <= 0;
}

}  // namespace cpshard
