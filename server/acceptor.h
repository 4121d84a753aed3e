// Accepts connections and hands them to gRPC, in place of gRPC's own listeners. Why not those: a
// connection that is ours can be counted, and cut. A peer that is stopped with a full socket keeps
// every buffer of its answers: cancelling its calls writes to the same full socket, and on unix
// sockets no ping ever fails. Only shutting the socket down helps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cpshard {

struct AcceptorOptions {
  std::vector<std::string> listen;  // "host:port" (port 0 = any free one), "unix:/path"
  int64_t socket_mode = 0660;       // of unix sockets
  int64_t max_connections = 1024;   // more are closed as they come
  // Sent bytes that a TCP peer does not acknowledge for so long end the connection. Keepalive gives
  // up after 30 + 10 s. It must be longer than the stall time of a stream: to TCP a peer that reads
  // nothing looks the same as one that is gone.
  absl::Duration tcp_timeout = absl::Seconds(40);
};

// Thread-safe. One thread of its own. A connection takes two file descriptors.
class Acceptor {
 public:
  // Listens on all addresses, or on none; nobody is accepted before Start.
  // FailedPrecondition: a unix path that is taken or no socket; InvalidArgument: no address, or a
  // path that is too long; Unavailable: an address that cannot be bound (in use, not ours);
  // NotFound and others: the folder of a unix path.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const AcceptorOptions& options);

  ~Acceptor();  // StopListening, ShutAll

  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Where it listens: "127.0.0.1:43671", "unix:/run/cpshard.sock".
  const std::vector<std::string>& addresses() const;

  // Begins to accept: `take` gets every connected socket, non-blocking, and owns it (gRPC closes
  // it). Called on the acceptor's thread; must not call StopListening. Once, at most.
  void Start(std::function<void(int fd)> take);

  // No new connections, and `take` is not called any more once this returns; removes the files of
  // unix sockets. Connections that are there go on. Idempotent.
  void StopListening();

  // Ends a connection both ways, whatever is queued on it; gRPC then sees an error and lets go.
  // `peer` is what grpc::ServerContextBase::peer() says as a call begins (later, on a connection
  // that has failed, it may be "unknown"). It names the connection for as long as the call lives:
  // gRPC keeps the descriptor until then. Another peer: nothing happens.
  void Shut(absl::string_view peer);
  void ShutAll();

  // The peer of a call for people: its address, or its process on a unix socket. `peer` as above;
  // where nothing is known of it, itself.
  std::string Describe(absl::string_view peer) const;

  // Now. One counts from accept until both ways are shut, by whichever side.
  int64_t connections() const;
  // Since the start: over max_connections.
  int64_t refused() const;

 private:
  class Impl;
  explicit Acceptor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpshard
