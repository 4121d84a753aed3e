// The acceptor with gRPC. Peers speak HTTP/2 by hand, for they stop in the middle of an answer:
// their sockets stay open and full, as those of a stopped process.
#include <grpc/grpc.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "server/acceptor.h"
#include "server/server.h"
#include "tests/server/sockets.h"

namespace cpshard {
namespace {

// HTTP/2 as RFC 9113 and RFC 7541 have it: as much as a request needs.
std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string payload) {
  std::string frame;
  for (int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + payload;
}

std::string Text(const std::string& text) { return static_cast<char>(text.size()) + text; }

// Opens all flow control windows, so that nothing but the socket holds the server back.
// `acknowledge`: the server's settings, without having read them.
std::string Preface(bool acknowledge = true) {
  const std::string initial_window = {0, 4, 0x7f, '\xff', '\xff', '\xff'};
  const std::string increment = {0x7f, '\xf0', 0, 0};
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, initial_window) +
         (acknowledge ? Frame(4, 1, 0, "") : "") + Frame(8, 0, 0, increment);
}

std::string OpenRequest(uint32_t stream, const std::string& path) {
  const std::string headers = std::string("\x83\x86") + "\x04" + Text(path) + "\x01" + Text("x") +
                              std::string("\x0f\x10") + Text("application/grpc") +
                              std::string(1, '\0') + Text("te") + Text("trailers");
  return Frame(1, 4, stream, headers);
}

// A call with one empty message.
std::string Request(uint32_t stream, const std::string& path) {
  return OpenRequest(stream, path) + Frame(0, 1, stream, std::string(5, '\0'));
}

void Send(const OwnedFd& fd, const std::string& bytes) {
  EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// How many answers have arrived whole, of a peer that has read nothing: the headers that end a
// stream.
int Answered(const OwnedFd& fd) {
  int unread = 0;
  EXPECT_EQ(ioctl(fd.get(), FIONREAD, &unread), 0);
  std::string bytes(unread, '\0');
  bytes.resize(
      std::max<ssize_t>(recv(fd.get(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT), 0));
  int answers = 0;
  for (size_t at = 0; at + 9 <= bytes.size();) {
    const auto byte = [&](int i) { return static_cast<uint8_t>(bytes[at + i]); };
    const size_t end = at + 9 + ((byte(0) << 16) | (byte(1) << 8) | byte(2));
    answers += end <= bytes.size() && byte(3) == 1 && (byte(4) & 1) != 0;
    at = end;
  }
  return answers;
}

// Answers every call with 64 KiB messages, for ever.
class Flood : public grpc::CallbackGenericService {
 public:
  // Of the call that began last; waits for one.
  std::string Peer() {
    absl::MutexLock lock(&mutex_);
    const auto known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !peer_.empty(); };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&known), kPatience));
    return peer_;
  }

  // Until no write has got through for a moment.
  void AwaitStall() {
    EXPECT_TRUE(Eventually([this] { return written_ > 0; }));
    for (int64_t last = -1; last != written_; absl::SleepFor(absl::Milliseconds(200))) {
      last = written_;
    }
  }

  bool AwaitEnd() { return ended_.WaitForNotificationWithTimeout(kPatience); }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(Flood& flood) : flood_(flood) {
      const grpc::Slice slice(std::string(64 << 10, 'x'));
      message_ = grpc::ByteBuffer(&slice, 1);
      StartWrite(&message_);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      ++flood_.written_;
      StartWrite(&message_);
    }
    void OnDone() override {
      flood_.ended_.Notify();
      delete this;
    }

   private:
    Flood& flood_;
    grpc::ByteBuffer message_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override {
    absl::MutexLock lock(&mutex_);
    peer_ = call->peer();
    return new Reactor(*this);
  }

  absl::Mutex mutex_;
  std::string peer_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> written_ = 0;
  absl::Notification ended_;
};

std::string ListenOn(absl::string_view transport) {
  return transport == "unix" ? absl::StrCat("unix:", TempPath("calls.sock")) : "127.0.0.1:0";
}

class AcceptedCalls : public ::testing::TestWithParam<const char*> {
 protected:
  AcceptedCalls() {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&flood_);
    server_ = builder.BuildAndStart();
    acceptor_ = *Acceptor::Listen({.listen = {ListenOn(GetParam())}});
    acceptor_->Start([this](int fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd); });
  }

  ~AcceptedCalls() override {
    acceptor_->StopListening();
    acceptor_->ShutAll();
    server_->Shutdown();
  }

  OwnedFd Client() {
    OwnedFd client = Connect(acceptor_->addresses()[0]);
    Send(client, Preface() + Request(1, "/any/Method"));
    return client;
  }

  // Held, because the last grpc_shutdown() may sit in a poll for 10 s.
  static inline const bool kGrpcIsHeld = (grpc_init(), true);
  Flood flood_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
};

INSTANTIATE_TEST_SUITE_P(Transports, AcceptedCalls, ::testing::Values("tcp", "unix"));

TEST_P(AcceptedCalls, EndWithTheirConnectionThoughThePeerReadsNothing) {
  const OwnedFd client = Client();
  const std::string peer = flood_.Peer();
  flood_.AwaitStall();
  EXPECT_EQ(acceptor_->connections(), 1);
  acceptor_->Shut(peer);
  EXPECT_TRUE(flood_.AwaitEnd());
  EXPECT_TRUE(Eventually([this] { return acceptor_->connections() == 0; }));
}

TEST_P(AcceptedCalls, EndWithTheirPeerAndLeaveTheCount) {
  {
    const OwnedFd client = Client();
    flood_.AwaitStall();
    EXPECT_EQ(acceptor_->connections(), 1);
  }
  EXPECT_TRUE(flood_.AwaitEnd());
  EXPECT_TRUE(Eventually([this] { return acceptor_->connections() == 0; }));
}

// gRPC holds a peer to its limit of concurrent streams only once that peer has acknowledged it.
TEST(CallLimit, CutsAPeerThatOpensCallsWithoutEnd) {
  auto server = *Server::Start({.listen = {ListenOn("unix")}, .workers = 1});
  const OwnedFd honest = Connect(server->addresses()[0]);
  const OwnedFd greedy = Connect(server->addresses()[0]);
  Send(honest, Preface());
  Send(greedy, Preface(/*acknowledge=*/false));
  bool cut = false;
  for (uint32_t stream = 1; stream < 20'000 && !cut; stream += 2) {
    // No end of the request: the calls stay open.
    const std::string call = OpenRequest(stream, "/cpshard.v1.ShardService/ShardBatches");
    cut = send(greedy.get(), call.data(), call.size(), MSG_NOSIGNAL) < 0;
  }
  EXPECT_TRUE(cut);
  EXPECT_TRUE(Eventually([&] { return server->counters().connections == 1; }));
  EXPECT_TRUE(Eventually([&] { return server->counters().streams == 0; }));
}

class StoppingServer : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Transports, StoppingServer, ::testing::Values("tcp", "unix"));

TEST_P(StoppingServer, IsNotHeldBackByAPeerThatReadsNothing) {
  auto server = *Server::Start({.listen = {ListenOn(GetParam())}, .workers = 1});
  const OwnedFd client = Connect(server->addresses()[0]);
  Send(client, Preface());
  // Fewer than its limit of concurrent streams at a time: the next ones when those before them are
  // answered, until no answer gets through any more.
  int calls = 0;
  while (Eventually([&] { return Answered(client) == calls; }, absl::Seconds(1))) {
    for (const int end = calls + 100; calls < end; ++calls) {
      Send(client, Request(2 * calls + 1, "/cpshard.v1.ShardService/GetServerInfo"));
    }
  }
  const absl::Time begin = absl::Now();
  server->Stop(absl::ZeroDuration(), [] { return true; });
  EXPECT_LT(absl::Now() - begin, kPatience / 2);
}

}  // namespace
}  // namespace cpshard
