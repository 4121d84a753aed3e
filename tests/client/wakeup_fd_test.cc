#include "client/wakeup_fd.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "absl/time/clock.h"

namespace cpshard {
namespace {

class WakeupFdTest : public testing::Test {
 protected:
  absl::Duration Slept(int fd, absl::Duration patience) {
    const absl::Time begin = absl::Now();
    wakeup_->Sleep(fd, patience);
    return absl::Now() - begin;
  }

  const std::unique_ptr<WakeupFd> wakeup_ = WakeupFd::Make().value();
};

TEST_F(WakeupFdTest, SleepsForItsPatience) {
  EXPECT_GE(Slept(-1, absl::Milliseconds(30)), absl::Milliseconds(29));
  EXPECT_LT(Slept(-1, -absl::InfiniteDuration()), absl::Seconds(5));
}

TEST_F(WakeupFdTest, AWakeUpBeforeTheSleepCountsOnce) {
  wakeup_->Wake();
  wakeup_->Wake();
  wakeup_->Sleep(-1, absl::InfiniteDuration());
  EXPECT_GE(Slept(-1, absl::Milliseconds(30)), absl::Milliseconds(29));
}

TEST_F(WakeupFdTest, AnotherThreadEndsTheSleep) {
  std::thread other([this] {
    absl::SleepFor(absl::Milliseconds(20));
    wakeup_->Wake();
  });
  wakeup_->Sleep(-1, absl::InfiniteDuration());
  other.join();
}

TEST_F(WakeupFdTest, SoDoesADescriptorThatCanBeWrittenOrHasFailed) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  wakeup_->Sleep(pair[0], absl::InfiniteDuration());
  while (write(pair[0], "0123456789", 10) > 0) continue;
  EXPECT_GE(Slept(pair[0], absl::Milliseconds(30)), absl::Milliseconds(29));
  close(pair[1]);
  wakeup_->Sleep(pair[0], absl::InfiniteDuration());
  close(pair[0]);
}

}  // namespace
}  // namespace cpshard
