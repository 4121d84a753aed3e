#include "server/listener.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/status/status.h"
#include "tests/server/sockets.h"

namespace cpshard {
namespace {

std::unique_ptr<Listener> Open(const std::string& address, int64_t socket_mode = 0660) {
  auto listener = Listener::Open(address, socket_mode);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return *std::move(listener);
}

absl::StatusCode Refusal(const std::string& address) {
  return Listener::Open(address, 0660).status().code();
}

TEST(Listener, APortInUseIsRefusedUntilItsListenerIsGone) {
  auto first = Open("127.0.0.1:0");
  const std::string address = first->address();
  EXPECT_EQ(Refusal(address), absl::StatusCode::kUnavailable);
  OwnedFd client = Connect(address);
  const OwnedFd connection(accept(first->sockets()[0].get(), nullptr, nullptr));
  EXPECT_TRUE(connection.ok());
  first.reset();
  EXPECT_EQ(Refusal(address), absl::StatusCode::kOk);  // though a connection is left
}

TEST(Listener, AddressesThatCannotBeHadAreRefused) {
  EXPECT_EQ(Refusal("203.0.113.1:0"), absl::StatusCode::kUnavailable);  // RFC 5737: nobody's
  EXPECT_EQ(Refusal("no.such.host.invalid:0"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Refusal("127.0.0.1"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("unix:/tmp/" + std::string(200, 'x')), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("unix:" + TempPath("absent/x.sock")), absl::StatusCode::kNotFound);
}

TEST(Listener, PortZeroBecomesAPortOfTheHostAskedFor) {
  for (const std::string host : {"127.0.0.1", "localhost", "0.0.0.0", "[::]"}) {
    const auto listener = Open(host + ":0");
    EXPECT_FALSE(listener->is_unix());
    EXPECT_TRUE(Connect(listener->address()).ok()) << listener->address();
    EXPECT_EQ(listener->address(), absl::StrCat(host, ":", PortOf(listener->address())));
  }
}

TEST(Listener, OnIPv6) {
  const auto six = Listener::Open("[::1]:0", 0660);
  if (!six.ok()) GTEST_SKIP() << "no IPv6: " << six.status();
  EXPECT_TRUE(Connect((*six)->address(), "::1").ok());
  EXPECT_FALSE(Connect((*six)->address()).ok());
  EXPECT_TRUE(Connect(Open("[::]:0")->address(), "::1").ok());
}

TEST(Listener, AUnixSocketHasTheModeAskedFor) {
  const std::string path = TempPath("mode.sock");
  for (const int64_t mode : {0600, 0660}) {
    const auto listener = Open(absl::StrCat("unix://", path), mode);
    EXPECT_TRUE(listener->is_unix());
    EXPECT_EQ(listener->address(), absl::StrCat("unix:", path));
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, static_cast<mode_t>(mode));
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(Listener, ALiveUnixSocketIsLeftToItsOwnerAndADeadOneIsTakenOver) {
  const std::string path = TempPath("owned.sock"), address = absl::StrCat("unix:", path);
  sockaddr_un name{.sun_family = AF_UNIX};
  path.copy(name.sun_path, sizeof name.sun_path);
  {
    const OwnedFd owner(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(owner.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    ASSERT_EQ(listen(owner.get(), 1), 0);
    EXPECT_EQ(Refusal(address), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(Connect(address).ok());
  }
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  const auto successor = Open(address);
  EXPECT_TRUE(Connect(address).ok());
}

TEST(Listener, AFileAtTheSocketPathIsLeftAlone) {
  const std::string path = TempPath("precious.sock");
  std::ofstream(path) << "data";
  EXPECT_EQ(Refusal(absl::StrCat("unix:", path)), absl::StatusCode::kFailedPrecondition);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "data");
}

}  // namespace
}  // namespace cpshard
