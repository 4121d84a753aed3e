// The connection of one ShardBatches stream: gRPC's channel, on a socket that can be cut. Why cut:
// a peer that has stopped with a full socket keeps a cancelled call from ending, and with it the
// buffers of its last write; the cancellation itself waits behind that write.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "client/address.h"
#include "client/socket.h"

namespace cpshard {

// Thread-safe. With its end the channel is of no more use: it does not reconnect.
class StreamConnection {
 public:
  // Waits and errors as ConnectSocket; ResourceExhausted: no second descriptor.
  static absl::StatusOr<std::unique_ptr<StreamConnection>> Connect(const Address& address,
                                                                   Rest rest);
  ~StreamConnection();

  StreamConnection(const StreamConnection&) = delete;
  StreamConnection& operator=(const StreamConnection&) = delete;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Ends the connection both ways, whatever is queued on it. Idempotent.
  void Cut();

 private:
  StreamConnection(std::shared_ptr<grpc::Channel> channel, int socket)
      : channel_(std::move(channel)), socket_(socket) {}

  const std::shared_ptr<grpc::Channel> channel_;
  const int socket_;  // a second descriptor: gRPC owns the first
};

}  // namespace cpshard
