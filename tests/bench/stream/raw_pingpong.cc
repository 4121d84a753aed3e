#include "tests/bench/stream/raw_pingpong.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/bench/stream/process.h"

namespace cpshard::bench {
namespace {

sockaddr_in Address(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

int MakeSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail(absl::StrCat("socket: ", std::strerror(errno)));
  return fd;
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int ListenOnLoopback(uint16_t& port) {
  const int fd = MakeSocket();
  sockaddr_in address = Address(0);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 8) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    Fail(absl::StrCat("listen: ", std::strerror(errno)));
  }
  port = ntohs(address.sin_port);
  return fd;
}

void ServeConnection(int fd, RawKind kind) {
  TokenShape shape;
  if (!ReceiveAll(fd, &shape, sizeof shape)) return;
  const Buffer landed = Resident(shape.bytes());
  const Buffer shards = kind == RawKind::kEcho ? landed : Resident(shape.bytes());
  while (ReceiveAll(fd, landed.data(), shape.bytes())) {
    if (kind == RawKind::kShardPass) ShardPass(shape, landed.data(), shards.data());
    SendAll(fd, shards.data(), shape.bytes());
  }
}

// A connection and the buffers of its trips.
class Connection {
 public:
  Connection(const TokenShape& shape, RawKind kind, uint16_t port)
      : shape_(shape),
        batch_(MakeTokenBatch(shape)),
        result_(Resident(shape.bytes())),
        fd_(MakeSocket()) {
    const sockaddr_in address = Address(port);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      Fail(absl::StrCat("connect to the raw server: ", std::strerror(errno)));
    }
    SendAtOnce(fd_);
    Send(fd_, shape);
    Trip();
    if (kind == RawKind::kShardPass) {
      CheckShards("the raw server", shape, batch_.data(), result_.data());
    } else if (std::memcmp(batch_.data(), result_.data(), batch_.size()) != 0) {
      Fail("the raw server answered other bytes");
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(fd_); }

  const TokenShape& shape() const { return shape_; }

  void Trip() {
    SendAll(fd_, batch_.data(), shape_.bytes());
    if (!ReceiveAll(fd_, result_.data(), shape_.bytes())) Fail("the raw server closed");
  }

 private:
  const TokenShape shape_;
  const Buffer batch_, result_;
  const int fd_;
};

}  // namespace

void RawServer(int fd, RawKind kind) {
  uint16_t port = 0;
  const int listener = ListenOnLoopback(port);
  Send(fd, port);
  while (true) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection < 0) Fail(absl::StrCat("accept: ", std::strerror(errno)));
    SendAtOnce(connection);
    ServeConnection(connection, kind);
    close(connection);
  }
}

void RawClient(int fd, RawKind kind, uint16_t port) {
  std::optional<Connection> connection;
  Obey(fd, [&](const Order& order) {
    if (!connection || !(connection->shape() == order.shape)) {
      connection.reset();  // the server has one at a time
      connection.emplace(order.shape, kind, port);
    }
    return RunTrips(order, [&] { connection->Trip(); });
  });
}

}  // namespace cpshard::bench
