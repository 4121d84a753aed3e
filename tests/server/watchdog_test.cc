#include "server/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace cpshard {
namespace {

constexpr int kStatus = 86;

[[noreturn]] void Hang() {
  while (true) pause();
}

TEST(WatchdogDeathTest, EndsAProcessThatHangsWithItsStatus) {
  const auto hang = [] {
    Watchdog watchdog([] {}, kStatus);
    watchdog.EndWithin(absl::Milliseconds(10));
    Hang();
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(kStatus), "");
}

TEST(WatchdogDeathTest, ItsLastWordsAreSaidAndMayHang) {
  const auto hang = [] {
    Watchdog watchdog(
        [] {
          (void)!write(STDERR_FILENO, "my last words", 13);
          Hang();
        },
        kStatus);
    watchdog.EndWithin(absl::ZeroDuration());
    Hang();
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(kStatus), "my last words");
}

TEST(WatchdogDeathTest, TheEarliestEndCountsAndTheObjectMayBeGone) {
  const auto hang = [] {
    {
      Watchdog watchdog([] {}, kStatus);
      watchdog.EndWithin(absl::Hours(1));
      watchdog.EndWithin(absl::Milliseconds(10));
      watchdog.EndWithin(absl::Hours(2));
    }
    Hang();
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(kStatus), "");
}

TEST(WatchdogDeathTest, WithoutAnEndTheProcessEndsByItself) {
  const auto end = [] {
    const Watchdog watchdog([] { std::_Exit(1); }, kStatus);
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cpshard
