#include "client/stream_connection.h"

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "client/channel.h"
#include "core/plan/status_macros.h"

namespace cpshard {

absl::StatusOr<std::unique_ptr<StreamConnection>> StreamConnection::Connect(const Address& address,
                                                                            Rest rest) {
  CPSHARD_ASSIGN_OR_RETURN(const int fd, ConnectSocket(address, rest));
  const int second = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (second < 0) {
    const int error = errno;
    close(fd);
    return absl::ErrnoToStatus(error, "no descriptor for a connection");
  }
  grpc::ChannelArguments arguments = ChannelArguments();
  // gRPC would keep the first bytes of a batch to send them again; whole batches are sent again
  // here.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20);
  return std::unique_ptr<StreamConnection>(new StreamConnection(
      grpc::CreateCustomInsecureChannelFromFd("localhost", fd, arguments), second));
}

StreamConnection::~StreamConnection() { close(socket_); }

void StreamConnection::Cut() { shutdown(socket_, SHUT_RDWR); }

}  // namespace cpshard
