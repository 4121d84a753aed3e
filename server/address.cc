#include "server/address.h"

#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cpshard {
namespace {

absl::Status Refuse(const std::string& address, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("listen '", address, "': ", why,
                                                 "; give host:port (port 0 = any free one) or "
                                                 "unix:/path"));
}

}  // namespace

std::optional<std::string> UnixPath(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return std::nullopt;
  if (absl::StartsWith(address, "//")) address.remove_prefix(2);
  return std::string(address);
}

absl::Status CheckAddress(const std::string& address) {
  if (const auto path = UnixPath(address)) {
    constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
    if (!path->empty() && path->size() <= kMaxPath) return absl::OkStatus();
    return Refuse(address, absl::StrCat("its path has ", path->size(), " bytes; 1 ... ", kMaxPath,
                                        " are possible"));
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return Refuse(address, "no host and port");
  const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find(':') != std::string::npos) return Refuse(address, "not a host");
  int number;
  const bool digits = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &number) || number > 65535) {
    return Refuse(address, absl::StrCat("port '", port, "' is not 0 ... 65535"));
  }
  return absl::OkStatus();
}

}  // namespace cpshard
