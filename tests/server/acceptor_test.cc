#include "server/acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/server/sockets.h"

namespace cpshard {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::unique_ptr<Acceptor> ListenOn(std::vector<std::string> listen, int64_t max_connections = 10) {
  auto acceptor = Acceptor::Listen({.listen = listen, .max_connections = max_connections});
  EXPECT_TRUE(acceptor.ok()) << acceptor.status();
  return *std::move(acceptor);
}

// In the place of gRPC: keeps what it is handed, answers nothing, closes as gRPC does.
class Taken {
 public:
  std::function<void(int)> Taker() {
    return [this](int fd) {
      absl::MutexLock lock(&mutex_);
      fds_.push_back(fd);
    };
  }
  ~Taken() {
    while (count() > 0) CloseFirst();
  }

  size_t count() {
    absl::MutexLock lock(&mutex_);
    return fds_.size();
  }
  int first() {
    absl::MutexLock lock(&mutex_);
    return fds_.front();
  }
  std::string FirstPeer() { return absl::StrCat("fd:", first()); }
  void CloseFirst() {
    absl::MutexLock lock(&mutex_);
    shutdown(fds_.front(), SHUT_RDWR);
    close(fds_.front());
    fds_.erase(fds_.begin());
  }

 private:
  absl::Mutex mutex_;
  std::vector<int> fds_ ABSL_GUARDED_BY(mutex_);
};

int64_t OpenDescriptors() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

int Option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  getsockopt(fd, level, name, &value, &size);
  return value;
}

class AcceptorOn : public ::testing::TestWithParam<const char*> {
 protected:
  AcceptorOn() : acceptor_(ListenOn({Listen()})) {}

  std::string Listen() {
    return absl::string_view(GetParam()) == "unix" ? absl::StrCat("unix:", TempPath("on.sock"))
                                                   : "127.0.0.1:0";
  }
  OwnedFd Client() { return Connect(acceptor_->addresses()[0]); }

  Taken taken_;
  std::unique_ptr<Acceptor> acceptor_;
};

INSTANTIATE_TEST_SUITE_P(Transports, AcceptorOn, ::testing::Values("tcp", "unix"));

TEST_P(AcceptorOn, HandsOverConnectionsOnceStarted) {
  const OwnedFd early = Client();
  EXPECT_TRUE(early.ok());
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(acceptor_->connections(), 0);
  acceptor_->Start(taken_.Taker());
  const OwnedFd late = Client();
  EXPECT_TRUE(Eventually([&] { return taken_.count() == 2; }));
  EXPECT_EQ(acceptor_->connections(), 2);
  EXPECT_NE(fcntl(taken_.first(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(taken_.first(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_P(AcceptorOn, AConnectionCountsUntilItsPeerLeaves) {
  acceptor_->Start(taken_.Taker());
  {
    const OwnedFd client = Client();
    EXPECT_TRUE(Eventually([&] { return acceptor_->connections() == 1; }));
    ASSERT_TRUE(Eventually([&] { return taken_.count() == 1; }));
  }
  // On TCP the peer has only stopped to write; gRPC then closes its side.
  if (acceptor_->addresses()[0].front() != 'u') taken_.CloseFirst();
  EXPECT_TRUE(Eventually([&] { return acceptor_->connections() == 0; }));
}

TEST_P(AcceptorOn, APeerSeesTheEndAsSoonAsTheOwnerCloses) {
  acceptor_->Start(taken_.Taker());
  const OwnedFd client = Client();
  ASSERT_TRUE(Eventually([&] { return taken_.count() == 1; }));
  taken_.CloseFirst();
  EXPECT_TRUE(IsEnded(client));
  EXPECT_TRUE(Eventually([&] { return acceptor_->connections() == 0; }));
}

TEST_P(AcceptorOn, ShutEndsTheConnectionOfThePeerAndNoOther) {
  acceptor_->Start(taken_.Taker());
  const OwnedFd first = Client();
  ASSERT_TRUE(Eventually([&] { return taken_.count() == 1; }));
  const OwnedFd second = Client();
  ASSERT_TRUE(Eventually([&] { return taken_.count() == 2; }));
  for (const char* stranger : {"", "fd:", "fd:x", "fd:-1", "fd:99999", "unknown", "unix:", "7"}) {
    acceptor_->Shut(stranger);
  }
  EXPECT_EQ(acceptor_->connections(), 2);
  acceptor_->Shut(taken_.FirstPeer());
  EXPECT_TRUE(IsEnded(first));
  EXPECT_TRUE(Eventually([&] { return acceptor_->connections() == 1; }));
  pollfd alive{second.get(), POLLIN};
  EXPECT_EQ(poll(&alive, 1, 20), 0);
  acceptor_->ShutAll();
  EXPECT_TRUE(IsEnded(second));
  EXPECT_TRUE(Eventually([&] { return acceptor_->connections() == 0; }));
}

TEST_P(AcceptorOn, ShutFailsWritesThatAPeerDoesNotTake) {
  acceptor_->Start(taken_.Taker());
  const OwnedFd client = Client();
  ASSERT_TRUE(Eventually([&] { return taken_.count() == 1; }));
  const std::string block(1 << 20, 'x');
  while (send(taken_.first(), block.data(), block.size(), MSG_NOSIGNAL) > 0) {
  }
  EXPECT_EQ(errno, EAGAIN);
  acceptor_->Shut(taken_.FirstPeer());
  EXPECT_LT(send(taken_.first(), block.data(), block.size(), MSG_NOSIGNAL), 0);
  EXPECT_EQ(errno, EPIPE);
}

TEST_P(AcceptorOn, StopListeningRefusesNewcomersAndLeavesTheOthers) {
  acceptor_->Start(taken_.Taker());
  const OwnedFd before = Client();
  ASSERT_TRUE(Eventually([&] { return taken_.count() == 1; }));
  acceptor_->StopListening();
  EXPECT_FALSE(Client().ok());
  EXPECT_FALSE(Exists(TempPath("on.sock")));
  EXPECT_EQ(acceptor_->connections(), 1);
  EXPECT_EQ(send(taken_.first(), "y", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(recv(before.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'y');
  acceptor_->StopListening();
  acceptor_.reset();
  EXPECT_TRUE(IsEnded(before));
}

TEST_P(AcceptorOn, NothingIsTakenOnceStopListeningReturned) {
  std::atomic<bool> stopped = false;
  acceptor_->Start([&](int fd) {
    EXPECT_FALSE(stopped);
    close(fd);
  });
  std::thread crowd([&] {
    while (Client().ok()) {
    }
  });
  absl::SleepFor(absl::Milliseconds(20));
  acceptor_->StopListening();
  stopped = true;
  crowd.join();
}

TEST_P(AcceptorOn, StoppingBeforeTheStartTakesNobody) {
  acceptor_->StopListening();
  acceptor_->Start(taken_.Taker());
  EXPECT_FALSE(Client().ok());
  EXPECT_EQ(taken_.count(), 0u);
}

TEST_P(AcceptorOn, ManyComeAndGoAndNoneStaysInTheCount) {
  acceptor_->Start([](int fd) {
    shutdown(fd, SHUT_RDWR);
    close(fd);
  });
  const int64_t before = OpenDescriptors();
  std::vector<std::thread> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.emplace_back([&] {
      for (int j = 0; j < 250; ++j) EXPECT_TRUE(IsEnded(Client()));
    });
  }
  for (std::thread& client : crowd) client.join();
  EXPECT_TRUE(Eventually([&] { return acceptor_->connections() == 0; }));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Acceptor, ClosesConnectionsOverTheLimitUntilOneLeaves) {
  const auto acceptor = ListenOn({"127.0.0.1:0"}, 2);
  Taken taken;
  acceptor->Start(taken.Taker());
  const OwnedFd first = Connect(acceptor->addresses()[0]);
  const OwnedFd second = Connect(acceptor->addresses()[0]);
  ASSERT_TRUE(Eventually([&] { return taken.count() == 2; }));
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(IsEnded(Connect(acceptor->addresses()[0])));
    EXPECT_EQ(acceptor->refused(), i);
  }
  taken.CloseFirst();
  EXPECT_TRUE(IsEnded(first));
  EXPECT_TRUE(Eventually([&] { return acceptor->connections() == 1; }));
  const OwnedFd third = Connect(acceptor->addresses()[0]);
  EXPECT_TRUE(Eventually([&] { return taken.count() == 2; }));
  EXPECT_EQ(acceptor->refused(), 3);
}

TEST(Acceptor, ConnectionsWaitWhileTheProcessIsOutOfDescriptors) {
  const auto acceptor = ListenOn({"127.0.0.1:0"});
  Taken taken;
  acceptor->Start(taken.Taker());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const OwnedFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(PortOf(acceptor->addresses()[0]))};
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  const clock_t cpu = clock();
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_LT(clock() - cpu, CLOCKS_PER_SEC / 10);  // it does not spin
  EXPECT_EQ(taken.count(), 0u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(Eventually([&] { return taken.count() == 1; }));
}

TEST(Acceptor, TunesSocketsByTheirKind) {
  const auto acceptor = ListenOn({"127.0.0.1:0"});
  Taken taken;
  acceptor->Start(taken.Taker());
  const OwnedFd client = Connect(acceptor->addresses()[0]);
  ASSERT_TRUE(Eventually([&] { return taken.count() == 1; }));
  EXPECT_EQ(Option(taken.first(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(Option(taken.first(), IPPROTO_TCP, TCP_USER_TIMEOUT), 40'000);

  const auto unix_acceptor = ListenOn({absl::StrCat("unix:", TempPath("tuned.sock"))});
  Taken unix_taken;
  unix_acceptor->Start(unix_taken.Taker());
  const OwnedFd unix_client = Connect(unix_acceptor->addresses()[0]);
  ASSERT_TRUE(Eventually([&] { return unix_taken.count() == 1; }));
  const int plain = Option(unix_client.get(), SOL_SOCKET, SO_SNDBUF);
  EXPECT_GE(Option(unix_taken.first(), SOL_SOCKET, SO_SNDBUF), plain);
}

TEST(Acceptor, APortInUseIsRefusedAndNothingElseIsServed) {
  const auto first = ListenOn({"127.0.0.1:0"});
  const auto second = Acceptor::Listen(
      {.listen = {absl::StrCat("unix:", TempPath("all.sock")), first->addresses()[0]}});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(Exists(TempPath("all.sock")));
  EXPECT_TRUE(Connect(first->addresses()[0]).ok());
}

}  // namespace
}  // namespace cpshard
