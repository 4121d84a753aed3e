// The listening sockets of one address.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/owned_fd.h"
#include "server/socket_lock.h"

namespace cpshard {

class Listener {
 public:
  // `address`: "host:port" (port 0 = any free one) or "unix:/path"; `socket_mode`: of a unix
  // socket, in force before anybody can connect. A host name listens on all its addresses of this
  // machine, all on one port; "[::]" on IPv4 too. InvalidArgument: neither form;
  // FailedPrecondition: the path is taken or no socket; Unavailable: cannot be bound (in use, not
  // ours); NotFound and others: the path's folder.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address,
                                                        int64_t socket_mode);

  ~Listener();  // removes the unix socket

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // "127.0.0.1:43671", "unix:/run/cpshard.sock".
  const std::string& address() const { return address_; }
  bool is_unix() const { return lock_.has_value(); }
  const std::vector<OwnedFd>& sockets() const { return sockets_; }  // non-blocking

 private:
  Listener() = default;
  absl::Status OpenUnix(const std::string& path, int64_t socket_mode);
  absl::Status OpenTcp(const std::string& host, const std::string& port);

  std::string address_;
  std::optional<SocketLock> lock_;  // released last: until then the path is ours
  std::string path_;                // to remove; empty: nothing
  std::vector<OwnedFd> sockets_;
};

}  // namespace cpshard
