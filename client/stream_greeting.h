// The beginning of a stream's connection: connect, and ask who the server is. On the same
// connection, so that the one that answers is the one that gets the batches.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/address.h"
#include "client/socket.h"
#include "client/stream_connection.h"
#include "client/wakeup_fd.h"
#include "proto/replies.h"

namespace cpshard {

struct Greeted {
  std::shared_ptr<StreamConnection> connection;
  ServerInfo server;
};

// Waits in `rest` only, which must return when `wakeup` is woken; but for host names, see
// ConnectSocket. A server may take 15 s to say who it is.
// The server's status; Unavailable: it cannot be reached; DeadlineExceeded: it does not say who it
// is; Cancelled: `rest` returned false.
absl::StatusOr<Greeted> Greet(const Address& address, WakeupFd& wakeup, Rest rest);

}  // namespace cpshard
