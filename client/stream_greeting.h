// The beginning of a stream's connection: connect, and ask who the server is. On the same
// connection, so that the one that answers is the one that gets the batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/address.h"
#include "client/client.h"
#include "client/socket.h"
#include "client/stream_connection.h"
#include "client/wakeup_fd.h"
#include "proto/replies.h"

namespace cpshard {

struct Greeted {
  std::shared_ptr<StreamConnection> connection;
  ServerInfo server;
};

// Its answer, waited for in `rest`, which must return when the call is answered. Cancelled: `rest`
// returned false.
template <typename Answer>
absl::StatusOr<Answer> Await(const UnaryCall<Answer>& call, Rest rest) {
  while (true) {
    if (std::optional<absl::StatusOr<Answer>> answer = call.answer()) return *std::move(answer);
    if (!rest(-1, absl::InfiniteDuration())) return absl::CancelledError("given up");
  }
}

// Bytes that an answer of this server may have at most.
int64_t LargestAnswer(const ServerInfo& server);

// Waits in `rest` only, which must return when `wakeup` is woken; but for host names, see
// ConnectSocket. A server may take 15 s to say who it is.
// The server's status; Unavailable: it cannot be reached; DeadlineExceeded: it does not say who it
// is; Cancelled: `rest` returned false.
absl::StatusOr<Greeted> Greet(const Address& address, WakeupFd& wakeup, Rest rest);

}  // namespace cpshard
