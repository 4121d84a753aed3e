// The failpoints that tests are built with.
#include "core/batch/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

namespace cpshard {
namespace {

// The variable is read once, so every case is a process of its own.
void PassAll(const char* variable) {
  setenv("CPSHARD_FAILPOINTS", variable, 1);
  for (int i = 0; i < 3; ++i) {
    Failpoint("after_ack");
    Failpoint("other");
  }
  std::exit(7);
}

TEST(Failpoint, KillsAtThePassThatIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(PassAll("other=kill@9,after_ack=kill@3"), testing::KilledBySignal(SIGKILL), "");
}

TEST(Failpoint, DoesNothingAtOtherPlacesAndPasses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(PassAll("after_ack=kill@4,never=stop@1"), testing::ExitedWithCode(7), "");
}

TEST(Failpoint, AMisspeltVariableIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* variable : {"after_ack", "after_ack=kill", "after_ack=die@1", "a=kill@x"}) {
    EXPECT_EXIT(PassAll(variable), testing::KilledBySignal(SIGABRT), "is not name=kill@n");
  }
}

}  // namespace
}  // namespace cpshard
