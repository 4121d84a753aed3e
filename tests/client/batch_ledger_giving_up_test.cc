#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/client/batch_ledger.h"

namespace cpshard {
namespace {

using ::testing::IsEmpty;

// --- giving up, in every phase

TEST_F(BatchLedgerTest, ACancelledBatchThatWaitsIsNeverSent) {
  const Submitted batch = Submit(64);
  ledger_->Cancel(batch.number);
  Settle();
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kCancelled);
  Connect();
  EXPECT_THAT(Written(), IsEmpty());
}

TEST_F(BatchLedgerTest, ACancelledBatchThatIsBeingSentIsBrokenOffWithACancelFrame) {
  Connect();
  const Submitted batch = Submit(6 * kMega);
  Submit(64);
  ledger_->NextFrame(now_);
  const std::optional<FrameToSend> second = ledger_->NextFrame(now_);
  ledger_->Cancel(batch.number);
  Settle();
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kCancelled);
  const std::vector<FrameToSend> rest = Written();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_TRUE(rest[0].cancel);
  EXPECT_EQ(rest[0].wire_id, second->wire_id);
  EXPECT_EQ(rest[0].seq, 2u);
  EXPECT_EQ(rest[0].batch, nullptr);
  EXPECT_EQ(rest[1].seq, 0u);
}

TEST_F(BatchLedgerTest, ACancelledBatchThatWasSentIsCancelledAtTheServer) {
  Connect();
  const Submitted batch = Submit(3 * kMega);
  Written();
  ledger_->Cancel(batch.number);
  const std::vector<FrameToSend> rest = Written();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(rest[0].cancel);
  EXPECT_EQ(rest[0].seq, 2u);
  EXPECT_EQ(rest[0].offset, 3 * kMega);
}

TEST_F(BatchLedgerTest, ACancelledBatchThatWaitsToBeSentAgainIsGone) {
  Connect();
  const Submitted batch = Submit(64);
  Refuse(Begun()[0], absl::ResourceExhaustedError("no memory"), 100);
  ledger_->Cancel(batch.number);
  Settle();
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kCancelled);
  Pass(absl::Seconds(1));
  EXPECT_THAT(Written(), IsEmpty());
  EXPECT_EQ(ledger_->NextEvent(now_), absl::InfiniteFuture());
}

TEST_F(BatchLedgerTest, ACancelAfterTheAnswerChangesNothing) {
  Connect();
  const Submitted batch = Submit(64);
  Answer(Begun()[0]);
  ledger_->Cancel(batch.number);
  Settle();
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kOk);
  EXPECT_THAT(Written(), IsEmpty());
}

TEST_F(BatchLedgerTest, ACancelFrameDoesNotOutliveItsConnection) {
  Connect();
  const Submitted batch = Submit(64);
  Written();
  ledger_->Cancel(batch.number);
  Lose();
  Connect();
  EXPECT_THAT(Written(), IsEmpty());
}

TEST_F(BatchLedgerTest, CloseAllClosesEveryPhaseAndBreaksOffWhatIsBeingSent) {
  Make({.max_inflight_batches = 2});
  Connect();
  const std::vector<Submitted> batches = {Submit(64), Submit(6 * kMega), Submit(64)};
  ledger_->NextFrame(now_);
  ledger_->NextFrame(now_);
  ledger_->CloseAll(absl::CancelledError("closed"));
  Settle();
  for (const Submitted& batch : batches) {
    EXPECT_EQ(CodeOf(batch), absl::StatusCode::kCancelled);
    EXPECT_TRUE(batch.batch.expired());
  }
  const std::vector<FrameToSend> rest = Written();
  ASSERT_EQ(rest.size(), 2u);
  for (const FrameToSend& frame : rest) EXPECT_TRUE(frame.cancel);
}

// --- deadlines, in every phase

class BatchDeadline : public BatchLedgerTest {
 protected:
  BatchDeadline() { Make({.deadline = absl::Seconds(3), .max_inflight_batches = 1}); }

  void ExpectExpires(const Submitted& batch, const std::string& reason) {
    Pass(absl::Seconds(3) - absl::Nanoseconds(1));
    EXPECT_FALSE(batch.pending->done());
    EXPECT_LE(ledger_->NextEvent(now_), now_ + absl::Nanoseconds(1));
    Pass(absl::Nanoseconds(1));
    EXPECT_EQ(CodeOf(batch), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(TextOf(batch), "no shards from unix:/s within 3s: " + reason);
  }
};

TEST_F(BatchDeadline, BeforeTheFirstConnection) { ExpectExpires(Submit(64), "not connected yet"); }

TEST_F(BatchDeadline, WhileNobodyAnswersTheDoor) {
  const Submitted batch = Submit(64);
  ledger_->Disconnected(absl::UnavailableError("nobody there"), "cannot connect", now_);
  ExpectExpires(batch, "cannot connect: UNAVAILABLE: nobody there");
}

TEST_F(BatchDeadline, AfterTheConnectionWasLost) {
  Connect();
  const Submitted batch = Submit(64);
  Written();
  Lose();
  ExpectExpires(batch, "connection lost: UNAVAILABLE: reset; lost before with connections: 1");
}

TEST_F(BatchDeadline, WhileWaitingForCredit) {
  Make({.deadline = absl::Seconds(3), .max_inflight_batches = 1});
  Connect();
  const Submitted first = Submit(128), second = Submit(64);
  Written();
  ExpectExpires(first, "sent, not answered");
  EXPECT_EQ(TextOf(second),
            "no shards from unix:/s within 3s: waiting for credit: 1 batches of 128 bytes under "
            "way");
}

TEST_F(BatchDeadline, InTheMiddleOfBeingSent) {
  Connect();
  const Submitted batch = Submit(6 * kMega);
  const uint64_t id = ledger_->NextFrame(now_)->wire_id;
  ExpectExpires(batch, "being sent, 2097152 of 6291456 bytes written");
  const std::vector<FrameToSend> rest = Written();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(rest[0].cancel);
  EXPECT_EQ(rest[0].wire_id, id);
}

TEST_F(BatchDeadline, WhileTheServerIsGoingDown) {
  Connect();
  Submit(64);
  Written();
  ledger_->Drain();
  Pass(absl::Seconds(1));
  const Submitted batch = Submit(64);
  ExpectExpires(batch, "the server is going down and takes no more");
}

TEST_F(BatchDeadline, WhileItIsStillConnecting) {
  ledger_->Connecting();
  ExpectExpires(Submit(64), "still connecting, or asking the server who it is");
}

TEST_F(BatchDeadline, WhileItIsConnectingOnceMore) {
  ledger_->Disconnected(absl::UnavailableError("nobody there"), "cannot connect", now_);
  ledger_->Connecting();
  ExpectExpires(Submit(64),
                "still connecting, or asking the server who it is; before: cannot connect: "
                "UNAVAILABLE: nobody there");
}

TEST_F(BatchDeadline, WhileWaitingForCreditOnceMore) {
  Connect();
  const Submitted batch = Submit(64);
  Refuse(Begun()[0], absl::ResourceExhaustedError("no memory"), 100);
  Submit(128);  // passes it, and keeps the only place
  EXPECT_EQ(Begun().size(), 1u);
  ExpectExpires(batch,
                "waiting for credit: 1 batches of 128 bytes under way; refused before with "
                "RESOURCE_EXHAUSTED: no memory");
}

TEST_F(BatchDeadline, OfEveryBatchOnItsOwn) {
  Connect();
  const Submitted early = Submit(64);
  Pass(absl::Seconds(2));
  const Submitted late = Submit(64);
  Pass(absl::Seconds(1));
  EXPECT_TRUE(early.pending->done());
  EXPECT_FALSE(late.pending->done());
  Pass(absl::Seconds(2));
  EXPECT_TRUE(late.pending->done());
}

}  // namespace
}  // namespace cpshard
