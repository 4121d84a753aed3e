#include "client/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/client.h"
#include "client/shard_stream.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

TEST(Address, TakesAHostAndItsPort) {
  for (const auto& [text, host, port] :
       {std::tuple("localhost:7070", "localhost", "7070"),
        std::tuple("127.0.0.1:1", "127.0.0.1", "1"),
        std::tuple("node-3.rack_1:65535", "node-3.rack_1", "65535"),
        std::tuple("[::1]:7070", "::1", "7070"),
        std::tuple("[fe80::1%eth0]:80", "fe80::1%eth0", "80")}) {
    const absl::StatusOr<Address> address = Address::Parse(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_FALSE(address->is_unix());
    EXPECT_EQ(address->text, text);
    EXPECT_EQ(address->host, host);
    EXPECT_EQ(address->port, port);
  }
}

TEST(Address, TakesThePathOfAUnixSocket) {
  const std::string longest = "/" + std::string(106, 'x');  // sun_path has 108, one of them zero
  for (const auto& [text, path] : {std::pair<std::string, std::string>("unix:/run/s", "/run/s"),
                                   {"unix:///run/s", "/run/s"},
                                   {"unix:s", "s"},
                                   {"unix:/a:1", "/a:1"},
                                   {"unix:" + longest, longest}}) {
    const absl::StatusOr<Address> address = Address::Parse(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_TRUE(address->is_unix());
    EXPECT_EQ(address->path, path);
  }
}

TEST(Address, GrpcReadsAPathAsAUri) {
  EXPECT_EQ(Address::Parse("unix:/a b%20?#\xc3.s-_~")->GrpcTarget(),
            "unix:/a%20b%2520%3f%23%c3.s-_~");
  EXPECT_EQ(Address::Parse("unix:///run/s")->GrpcTarget(), "unix:/run/s");
  EXPECT_EQ(Address::Parse("[::1]:7070")->GrpcTarget(), "[::1]:7070");
}

TEST(Address, EverythingElseIsRefusedAtOnceByBothClients) {
  for (const std::string& text : {std::string(""),
                                  std::string("nonsense"),
                                  std::string("localhost"),
                                  std::string(":7070"),
                                  std::string("127.0.0.1:"),
                                  std::string("127.0.0.1:0"),
                                  std::string("127.0.0.1:65536"),
                                  std::string("127.0.0.1:99999999999"),
                                  std::string("127.0.0.1:-1"),
                                  std::string("127.0.0.1:+1"),
                                  std::string("127.0.0.1: 1"),
                                  std::string("127.0.0.1:http"),
                                  std::string("::1:7070"),
                                  std::string("[::1]"),
                                  std::string("[::1:7070"),
                                  std::string("[localhost]:7070"),
                                  std::string("[]:7070"),
                                  std::string("a b:7070"),
                                  std::string("http://127.0.0.1:7070"),
                                  std::string("dns:///localhost:7070"),
                                  std::string("dns:localhost:7070"),
                                  std::string("ipv4:127.0.0.1:7070"),
                                  std::string("unix-abstract:name"),
                                  std::string("unix:"),
                                  std::string("unix://"),
                                  std::string("unix://run/s"),
                                  "unix:/" + std::string(107, 'x'),
                                  std::string("unix:/a\0b", 9)}) {
    const absl::Status status = Address::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + text + "'"));
    EXPECT_EQ(Client::Connect(text).status(), status);
    EXPECT_EQ(ShardStream::Open(text).status(), status);
  }
}

}  // namespace
}  // namespace cpshard
