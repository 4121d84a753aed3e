// The stream client against a server that nobody comes to the door of: the address listens, and
// that is all. Its deadlines and its end do not wait for it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "client/shard_stream.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

enum class Door { kUnix, kTcp, kFullTcp };

// A socket that listens and never accepts. kFullTcp: even the connection waits, for the queue of
// the socket is full.
class FrozenListener {
 public:
  explicit FrozenListener(Door door) {
    if (door == Door::kUnix) {
      char folder[] = "/tmp/cpshard-test-XXXXXX";
      folder_ = mkdtemp(folder);
      sockaddr_un name{.sun_family = AF_UNIX};
      std::strcpy(name.sun_path, (folder_ + "/s").c_str());
      address_ = "unix:" + folder_ + "/s";
      Listen(AF_UNIX, reinterpret_cast<sockaddr*>(&name), sizeof name);
      return;
    }
    sockaddr_in name{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof name;
    const int listener = Listen(AF_INET, reinterpret_cast<sockaddr*>(&name), size);
    getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
    for (int i = 0; door == Door::kFullTcp && i < 4; ++i) {
      sockets_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      connect(sockets_.back(), reinterpret_cast<sockaddr*>(&name), size);
    }
  }

  ~FrozenListener() {
    for (const int fd : sockets_) close(fd);
    if (!folder_.empty()) std::system(("rm -rf " + folder_).c_str());
  }

  const std::string& address() const { return address_; }

 private:
  int Listen(int family, sockaddr* name, socklen_t size) {
    sockets_.push_back(socket(family, SOCK_STREAM, 0));
    EXPECT_EQ(bind(sockets_.back(), name, size), 0);
    EXPECT_EQ(listen(sockets_.back(), family == AF_UNIX ? 16 : 0), 0);
    return sockets_.back();
  }

  std::string folder_, address_;
  std::vector<int> sockets_;
};

class FrozenListenerTest : public testing::TestWithParam<Door> {
 protected:
  std::unique_ptr<ShardStream> Open(const StreamOptions& options = {}) {
    std::unique_ptr<ShardStream> stream = ShardStream::Open(listener_.address(), options).value();
    absl::SleepFor(absl::Milliseconds(30));  // it is in the middle of connecting
    return stream;
  }

  const FrozenListener listener_{GetParam()};
};

std::string NameOf(const testing::TestParamInfo<Door>& info) {
  return info.param == Door::kUnix ? "Unix" : info.param == Door::kTcp ? "Tcp" : "FullTcp";
}

INSTANTIATE_TEST_SUITE_P(, FrozenListenerTest,
                         testing::Values(Door::kUnix, Door::kTcp, Door::kFullTcp), NameOf);

TEST_P(FrozenListenerTest, ADeadlineIsKeptWhileTheStreamConnects) {
  const auto stream = Open({.deadline = absl::Milliseconds(200)});
  for (int i = 0; i < 3; ++i) {
    const absl::Time begin = absl::Now();
    const absl::Status status = stream->Submit(Batch(), Options(), 2).Wait().status();
    const absl::Duration took = absl::Now() - begin;
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr(listener_.address()));
    EXPECT_THAT(std::string(status.message()), HasSubstr("still connecting"));
    EXPECT_GE(took, absl::Milliseconds(190));
    EXPECT_LT(took, absl::Milliseconds(700));
  }
  EXPECT_EQ(stream->stats().connects, 0);
}

TEST_P(FrozenListenerTest, ABatchCanBeCancelledWhileTheStreamConnects) {
  const auto stream = Open();
  const PendingShards batch = stream->Submit(Batch(), Options(), 2);
  batch.Cancel();
  EXPECT_EQ(batch.Wait().status().code(), absl::StatusCode::kCancelled);
}

TEST_P(FrozenListenerTest, AStreamThatConnectsEndsAtOnce) {
  auto stream = Open();
  const PendingShards batch = stream->Submit(Batch(), Options(), 2);
  const absl::Time begin = absl::Now();
  stream.reset();
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(500));
  EXPECT_EQ(batch.Wait().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace cpshard
