// A server that has fallen silent: it takes connections and bytes, and answers nothing.
#include <gtest/gtest.h>

#include <optional>

#include "tests/client/batch_ledger.h"

namespace cpshard {
namespace {

// What the owner of a ledger does: it sleeps until the next event, and hangs up when it is told.
class SilentServer : public BatchLedgerTest {
 protected:
  // How long it takes until the connection is given up; nullopt: longer than `patience`.
  std::optional<absl::Duration> HungUpAfter(absl::Duration patience) {
    const absl::Time begin = now_;
    while (now_ < begin + patience) {
      if (ledger_->ShouldHangUp()) return now_ - begin;
      const absl::Time next = ledger_->NextEvent(now_);
      if (next <= now_ || next == absl::InfiniteFuture()) break;  // it would never come about
      Pass(next - now_);
      Written();
    }
    return std::nullopt;
  }
};

TEST_F(BatchLedgerTest, ASilentServerThatLetsABatchExpireIsHungUpOn) {
  Make({.deadline = absl::Seconds(12)});
  Connect();
  Submit(64);
  Written();
  Pass(absl::Seconds(5));
  const Submitted late = Submit(64);
  Written();
  EXPECT_FALSE(ledger_->ShouldHangUp());
  Pass(absl::Seconds(7));
  EXPECT_TRUE(ledger_->ShouldHangUp());
  Lose(absl::CancelledError("hung up"));
  EXPECT_FALSE(ledger_->ShouldHangUp());
  EXPECT_FALSE(late.pending->done());
}

TEST_F(BatchLedgerTest, AServerThatIsOnlySlowIsNotHungUpOn) {
  Make({.deadline = absl::Seconds(12)});
  Connect();
  Submit(64);
  Written();
  Pass(absl::Seconds(3));
  ledger_->Heard(now_);  // a frame of an answer
  Pass(absl::Seconds(9));
  EXPECT_EQ(ledger_->size(), 0u);
  EXPECT_FALSE(ledger_->ShouldHangUp());
}

TEST_F(BatchLedgerTest, AnIdleConnectionIsNotSilent) {
  Make({.deadline = absl::Seconds(2)});
  Connect();
  Pass(absl::Minutes(1));
  Submit(64);
  Written();
  Pass(absl::Seconds(2));
  EXPECT_FALSE(ledger_->ShouldHangUp());
}

TEST_F(SilentServer, IsHungUpOnHoweverShortTheDeadline) {
  Make({.deadline = absl::Seconds(3), .max_inflight_batches = 2});
  Connect();
  const Submitted first = Submit(64), second = Submit(64);
  Written();
  EXPECT_EQ(HungUpAfter(absl::Minutes(1)), absl::Seconds(10));
}

TEST_F(SilentServer, IsHungUpOnWhileNewBatchesWaitForCreditThatNeverComes) {
  Make({.deadline = absl::Seconds(4), .max_inflight_batches = 2});
  Connect();
  Submit(64);
  Submit(64);
  Written();
  for (int seconds = 0; seconds < 10; ++seconds) {
    EXPECT_FALSE(ledger_->ShouldHangUp()) << seconds;
    Pass(absl::Seconds(1));
    Submit(64);
    Written();
  }
  EXPECT_TRUE(ledger_->ShouldHangUp());
}

TEST_F(SilentServer, IsHungUpOnWhenEverythingWasCancelled) {
  Make({.max_inflight_batches = 2});
  Connect();
  const Submitted first = Submit(64), second = Submit(64);
  Written();
  Pass(absl::Seconds(1));
  ledger_->Cancel(first.number);
  ledger_->Cancel(second.number);
  Settle();
  Written();
  EXPECT_EQ(HungUpAfter(absl::Minutes(1)), absl::Seconds(9));
}

TEST_F(SilentServer, IsWaitedForWhileNobodyHasGivenUpOnIt) {
  Make({.deadline = absl::Seconds(60)});
  Connect();
  Submit(64);
  Written();
  Pass(absl::Seconds(59));
  EXPECT_FALSE(ledger_->ShouldHangUp());
}

TEST_F(SilentServer, IsNotSilentWhileItTakesTheBytesOfALargeBatch) {
  Connect();
  const Submitted given_up = Submit(64);
  Submit(100 * kMega);
  ledger_->NextFrame(now_);
  ledger_->Cancel(given_up.number);
  Settle();
  ledger_->NextFrame(now_);  // the cancel
  ledger_->NextFrame(now_);  // the first body of the large one
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(ledger_->ShouldHangUp()) << i;
    Pass(absl::Seconds(2));
    ASSERT_TRUE(ledger_->NextFrame(now_).has_value());
  }
  Pass(absl::Seconds(10));  // the last one does not go
  EXPECT_TRUE(ledger_->ShouldHangUp());
}

// A process that stands still takes them all the same, until its socket is full.
TEST_F(SilentServer, IsSilentEvenIfItTakesSmallFrames) {
  Make({.deadline = absl::Seconds(3), .max_inflight_batches = 100});
  Connect();
  for (int seconds = 0; seconds < 10; ++seconds) {
    Submit(64);
    Written();
    Pass(absl::Seconds(1));
  }
  EXPECT_TRUE(ledger_->ShouldHangUp());
}

TEST_F(SilentServer, CostsTheOthersNoneOfTheirTries) {
  Make({.deadline = absl::Seconds(100)});
  const Submitted other = Submit(64);
  for (int i = 0; i < 8; ++i) {
    Connect();
    const Submitted given_up = Submit(64);
    Written();
    ledger_->Cancel(given_up.number);
    Settle();
    Pass(absl::Seconds(10));
    ASSERT_TRUE(ledger_->ShouldHangUp());
    Lose(absl::CancelledError("hung up"));
  }
  EXPECT_FALSE(other.pending->done());
}

}  // namespace
}  // namespace cpshard
