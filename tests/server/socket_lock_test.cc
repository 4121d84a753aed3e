#include "server/socket_lock.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace cpshard {
namespace {

std::string Path(const char* name) { return absl::StrCat(::testing::TempDir(), "/", name); }

TEST(SocketLock, OneHolderAtATime) {
  const std::string path = Path("one.sock");
  {
    const auto first = SocketLock::Acquire(path);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(SocketLock::Acquire(path).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(SocketLock::Acquire(path).ok());
}

TEST(SocketLock, MovesWithItsHolder) {
  const std::string path = Path("moved.sock");
  SocketLock first = *SocketLock::Acquire(path);
  const SocketLock second = std::move(first);
  EXPECT_FALSE(SocketLock::Acquire(path).ok());
}

TEST(SocketLock, AFileThatIsNoSocketIsLeftAlone) {
  const std::string path = Path("precious.txt");
  std::ofstream(path) << "data";
  EXPECT_EQ(SocketLock::Acquire(path).status().code(), absl::StatusCode::kFailedPrecondition);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "data");
}

TEST(SocketLock, APathLongerThanTheSystemTakesIsRefused) {
  EXPECT_EQ(SocketLock::Acquire("/tmp/" + std::string(200, 'x')).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SocketLock::Acquire("").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cpshard
