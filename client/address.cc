#include "client/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

template <typename... Parts>
absl::Status Refuse(absl::string_view address, const Parts&... why) {
  return absl::InvalidArgumentError(absl::StrCat("server address '", address, "': ", why...,
                                                 "; give host:port, [v6]:port or unix:/path"));
}

absl::Status CheckPath(absl::string_view address, absl::string_view path) {
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path.size() > kLongest) {
    return Refuse(address, "its path has ", path.size(), " bytes; 1 ... ", kLongest,
                  " are possible");
  }
  if (path.find('\0') != path.npos) return Refuse(address, "its path holds a zero byte");
  return absl::OkStatus();
}

// Of IPv6, perhaps with a scope ("fe80::1%eth0").
bool IsV6(absl::string_view host) {
  const std::string number(host.substr(0, host.find('%')));
  in6_addr parsed;
  return inet_pton(AF_INET6, number.c_str(), &parsed) == 1;
}

bool IsName(absl::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

absl::Status CheckPort(absl::string_view address, absl::string_view port) {
  int number = 0;
  const bool digits = std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  if (digits && absl::SimpleAtoi(port, &number) && number >= 1 && number <= 65535) {
    return absl::OkStatus();
  }
  return Refuse(address, "port '", port, "' is not 1 ... 65535");
}

}  // namespace

absl::StatusOr<Address> Address::Parse(absl::string_view text) {
  if (text.empty()) return Refuse(text, "it is empty");
  Address address{.text = std::string(text)};
  absl::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:")) {
    if (absl::ConsumePrefix(&path, "//") && !absl::StartsWith(path, "/")) {
      return Refuse(text, "unix:// is followed by an absolute path");
    }
    CPSHARD_RETURN_IF_ERROR(CheckPath(text, path));
    address.path = std::string(path);
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return Refuse(text, "no port");
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (bracketed ? !IsV6(host) : !IsName(host)) {
    return Refuse(text, "'", text.substr(0, colon), "' is no host");
  }
  address.host = std::string(host);
  address.port = std::string(text.substr(colon + 1));
  CPSHARD_RETURN_IF_ERROR(CheckPort(text, address.port));
  return address;
}

std::string Address::GrpcTarget() const {
  if (!is_unix()) return text;
  // gRPC reads the path as that of a URI.
  std::string target = "unix:";
  for (const char c : path) {
    if (absl::ascii_isalnum(c) || absl::StrContains("/._-~", absl::string_view(&c, 1))) {
      target.push_back(c);
    } else {
      absl::StrAppend(&target, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return target;
}

}  // namespace cpshard
