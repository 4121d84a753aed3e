#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/client/batch_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Interest = BatchLedger::Interest;

// --- connection

TEST_F(BatchLedgerTest, WantsAConnectionAtOnceAndThenOnlyForABatch) {
  EXPECT_TRUE(ledger_->WantsConnection(now_));
  EXPECT_LE(ledger_->NextEvent(now_), now_);
  Connect();
  EXPECT_FALSE(ledger_->WantsConnection(now_));
  Lose();
  Pass(absl::Minutes(1));
  EXPECT_FALSE(ledger_->WantsConnection(now_));
  EXPECT_EQ(ledger_->NextEvent(now_), absl::InfiniteFuture());
  Submit(64);
  EXPECT_TRUE(ledger_->WantsConnection(now_));
  EXPECT_LE(ledger_->NextEvent(now_), now_);
}

TEST_F(BatchLedgerTest, WaitsLongerAfterEveryVainTry) {
  Submit(64);
  double longest_ms = 20;
  for (int i = 0; i < 12; ++i) {
    ledger_->Disconnected(absl::UnavailableError("refused"), "cannot connect", now_);
    EXPECT_FALSE(ledger_->WantsConnection(now_));
    const double wait_ms = absl::ToDoubleMilliseconds(ledger_->NextEvent(now_) - now_);
    EXPECT_LE(wait_ms, longest_ms) << i;
    EXPECT_GE(wait_ms, longest_ms / 2 - 1) << i;
    Pass(absl::Milliseconds(wait_ms) + absl::Microseconds(1));
    EXPECT_TRUE(ledger_->WantsConnection(now_));
    longest_ms = std::min(2000.0, 2 * longest_ms);
  }
}

TEST_F(BatchLedgerTest, AnAnswerMakesTheNextWaitShortAgain) {
  Submit(64);
  for (int i = 0; i < 8; ++i) Lose();
  Connect();
  Answer(Begun()[0]);
  Submit(64);
  Lose();
  EXPECT_LE(ledger_->NextEvent(now_), now_ + absl::Milliseconds(20));
}

TEST_F(BatchLedgerTest, AfterAReconnectExactlyWhatWasNotAnsweredIsSentAgainOldestFirst) {
  Make({.max_inflight_batches = 4});
  Connect();
  std::vector<Submitted> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(Submit(64));
  batches.push_back(Submit(6 * kMega));  // in the middle of being sent
  batches.push_back(Submit(64));         // waiting
  std::vector<uint64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(ledger_->NextFrame(now_)->wire_id);
  Answer(ids[1]);
  Lose();
  for (const uint64_t id : ids) EXPECT_EQ(ledger_->InterestIn(id), Interest::kUnknown);
  Connect();
  std::vector<std::shared_ptr<const OutgoingBatch>> begun;
  for (const FrameToSend& frame : Written()) {
    if (frame.seq == 0) begun.push_back(frame.batch);
    EXPECT_TRUE(frame.seq > 0 || frame.offset == 0);
  }
  EXPECT_THAT(begun, ElementsAre(batches[0].batch.lock(), batches[2].batch.lock(),
                                 batches[3].batch.lock(), batches[4].batch.lock()));
  EXPECT_EQ(ledger_->stats().resubmitted, 3);
  EXPECT_EQ(ledger_->stats().connects, 2);
}

TEST_F(BatchLedgerTest, ANewConnectionDoesNotWaitForTheOldServersTime) {
  Connect();
  Submit(64);
  Refuse(Begun()[0], absl::UnavailableError("draining"), 5000);
  Lose();
  Connect();
  EXPECT_EQ(Begun().size(), 1u);
}

TEST_F(BatchLedgerTest, AStatusThatWillNotChangeEndsEveryBatchAndTheNextTriesAgain) {
  for (const absl::Status& status :
       {absl::InvalidArgumentError("no frame"), absl::UnimplementedError("no such method"),
        absl::UnauthenticatedError("who"), absl::PermissionDeniedError("not you")}) {
    Make({.max_inflight_batches = 1});
    Connect();
    const Submitted sent = Submit(64), waiting = Submit(64);
    Written();
    Lose(status);
    EXPECT_EQ(CodeOf(sent), status.code());
    EXPECT_EQ(CodeOf(waiting), status.code());
    EXPECT_THAT(TextOf(sent), HasSubstr(std::string(status.message())));
    EXPECT_THAT(TextOf(sent), HasSubstr("unix:/s"));
    EXPECT_FALSE(ledger_->WantsConnection(now_));
    Submit(64);
    EXPECT_TRUE(ledger_->WantsConnection(now_));
  }
}

TEST_F(BatchLedgerTest, OtherEndsOfAConnectionEndNoBatch) {
  using absl::StatusCode;
  for (const StatusCode code : {StatusCode::kUnavailable, StatusCode::kCancelled,
                                StatusCode::kInternal, StatusCode::kUnknown, StatusCode::kAborted,
                                StatusCode::kResourceExhausted, StatusCode::kDeadlineExceeded}) {
    Make({});
    Connect();
    const Submitted batch = Submit(64);
    Written();
    Lose(absl::Status(code, "end"));
    EXPECT_FALSE(batch.pending->done()) << static_cast<int>(code);
    Connect();
    EXPECT_EQ(Begun().size(), 1u);
  }
}

TEST_F(BatchLedgerTest, WhileItConnectsOnlyADeadlineIsAnEvent) {
  Make({.deadline = absl::Seconds(3)});
  EXPECT_TRUE(ledger_->WantsConnection(now_));
  ledger_->Connecting();
  EXPECT_FALSE(ledger_->WantsConnection(now_));
  EXPECT_EQ(ledger_->NextEvent(now_), absl::InfiniteFuture());
  Submit(64);
  EXPECT_FALSE(ledger_->WantsConnection(now_));
  EXPECT_EQ(ledger_->NextEvent(now_), now_ + absl::Seconds(3));
  EXPECT_THAT(Written(), IsEmpty());
  ledger_->Disconnected(absl::UnavailableError("refused"), "cannot connect", now_);
  EXPECT_LE(ledger_->NextEvent(now_), now_ + absl::Milliseconds(20));
}

// --- a batch that breaks connections

TEST_F(BatchLedgerTest, ABatchThatIsLostFiveTimesEndsWithTheStatusOfTheConnection) {
  const Submitted batch = Submit(64);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(batch.pending->done()) << i;
    Connect();
    EXPECT_EQ(Begun().size(), 1u);
    Lose(absl::InternalError("bug"));
  }
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kInternal);
  EXPECT_THAT(TextOf(batch), HasSubstr("unix:/s"));
  EXPECT_THAT(TextOf(batch), HasSubstr("5 connections"));
  EXPECT_THAT(TextOf(batch), HasSubstr("bug"));
}

TEST_F(BatchLedgerTest, ItsNeighboursDoNotFallWithIt) {
  Make({.max_inflight_batches = 4});
  std::vector<Submitted> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(Submit(64));
  batches.push_back(Submit(128));  // the one
  for (int i = 0; i < 2; ++i) batches.push_back(Submit(64));
  // Of a server that answers a round, but breaks where the one is in it.
  for (int round = 0; ledger_->size() > 0; ++round) {
    ASSERT_LT(round, 20);
    Connect();
    bool breaks = false;
    while (!breaks) {
      std::vector<uint64_t> ids;
      for (const FrameToSend& frame : Written()) {
        ids.push_back(frame.wire_id);
        breaks |= frame.batch->total_bytes == 128;
      }
      if (ids.empty()) break;
      if (!breaks) {
        for (const uint64_t id : ids) Answer(id);
      }
    }
    if (breaks) Lose(absl::InternalError("bug"));
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(CodeOf(batches[i]), i == 3 ? absl::StatusCode::kInternal : absl::StatusCode::kOk);
  }
}

// As a server does that loses its device: whatever it has is refused, then it ends.
TEST_F(BatchLedgerTest, ARefusalOfAServerThatGoesAndTheEndOfItsConnectionAreOneLoss) {
  const absl::Status gone = absl::UnavailableError("the server has lost cuda:0");
  Make({.deadline = absl::Minutes(5)});
  const Submitted batch = Submit(64);
  for (int i = 0; i < 4; ++i) {
    Connect();
    Refuse(Begun()[0], gone, 100);
    Pass(absl::Seconds(3));
    Refuse(Begun()[0], gone, 100);  // it is still there
    Pass(absl::Seconds(3));
    EXPECT_EQ(Begun().size(), 1u);
    Lose();
    ASSERT_FALSE(batch.pending->done()) << i;
  }
  Connect();
  Refuse(Begun()[0], gone, 100);
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(batch), HasSubstr("unix:/s"));
  EXPECT_THAT(TextOf(batch), HasSubstr("5 connections"));
  EXPECT_THAT(TextOf(batch), HasSubstr("may be why"));
  EXPECT_THAT(TextOf(batch), HasSubstr("the server has lost cuda:0"));
  EXPECT_EQ(ledger_->size(), 0u);
}

TEST_F(BatchLedgerTest, NeighboursDoNotFallWithABatchThatLosesTheDevice) {
  Make({.max_inflight_batches = 4});
  std::vector<Submitted> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(Submit(64));
  batches.push_back(Submit(128));  // the one
  for (int i = 0; i < 2; ++i) batches.push_back(Submit(64));
  for (int round = 0; ledger_->size() > 0; ++round) {
    ASSERT_LT(round, 20);
    Connect();
    bool lost = false;
    std::vector<uint64_t> ids;
    do {
      ids.clear();
      for (const FrameToSend& frame : Written()) {
        ids.push_back(frame.wire_id);
        lost |= frame.batch->total_bytes == 128;
      }
      for (const uint64_t id : ids) {
        if (lost) {
          Refuse(id, absl::UnavailableError("lost cuda:0"), 100);
        } else {
          Answer(id);
        }
      }
    } while (!lost && !ids.empty());
    Lose();
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(CodeOf(batches[i]), i == 3 ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk);
  }
}

TEST_F(BatchLedgerTest, ARefusalForWantOfMemoryIsNoLoss) {
  const Submitted batch = Submit(64);
  for (int i = 0; i < 8; ++i) {
    Connect();
    Refuse(Begun()[0], absl::ResourceExhaustedError("full"), 1);
    Lose();
  }
  EXPECT_FALSE(batch.pending->done());
}

TEST_F(BatchLedgerTest, ABatchThatWasNotUnderWayIsNotLost) {
  Make({.max_inflight_batches = 1});
  const Submitted first = Submit(64), waiting = Submit(64);
  for (int i = 0; i < 5; ++i) {
    Connect();
    Written();
    Lose(absl::InternalError("bug"));
  }
  EXPECT_TRUE(first.pending->done());
  EXPECT_FALSE(waiting.pending->done());
}

TEST_F(BatchLedgerTest, AConnectionThatNeverCameAboutLosesNothing) {
  const Submitted batch = Submit(64);
  for (int i = 0; i < 20; ++i) {
    ledger_->Disconnected(absl::UnavailableError("refused"), "cannot connect", now_);
  }
  EXPECT_FALSE(batch.pending->done());
}

// --- drain

TEST_F(BatchLedgerTest, ADrainingServerFinishesWhatItHasAndGetsNothingNew) {
  Make({.max_inflight_batches = 2});
  Connect();
  const Submitted sent = Submit(64), sending = Submit(6 * kMega), waiting = Submit(64);
  const uint64_t first = ledger_->NextFrame(now_)->wire_id;
  const uint64_t second = ledger_->NextFrame(now_)->wire_id;
  ledger_->Drain();
  EXPECT_EQ(Written().size(), 2u);  // the rest of what was begun
  EXPECT_FALSE(ledger_->ShouldHangUp());
  Answer(first);
  EXPECT_FALSE(ledger_->ShouldHangUp());
  Answer(second);
  EXPECT_THAT(Written(), IsEmpty());
  EXPECT_TRUE(ledger_->ShouldHangUp());
  EXPECT_EQ(CodeOf(sent), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(sending), absl::StatusCode::kOk);

  Lose(absl::CancelledError("hung up"));
  EXPECT_FALSE(ledger_->ShouldHangUp());
  EXPECT_LE(ledger_->NextEvent(now_), now_ + absl::Milliseconds(20));
  Connect();
  EXPECT_EQ(Begun().size(), 1u);
  EXPECT_FALSE(waiting.pending->done());
}

TEST_F(BatchLedgerTest, ABatchThatMetTheDrainWaitsForTheNextServer) {
  Connect();
  const Submitted batch = Submit(64);
  const uint64_t id = Begun()[0];
  ledger_->Drain();
  Refuse(id, absl::UnavailableError("draining"), 10);
  EXPECT_TRUE(ledger_->ShouldHangUp());
  Pass(absl::Milliseconds(20));
  EXPECT_THAT(Written(), IsEmpty());
  Lose(absl::CancelledError("hung up"));
  Connect();
  EXPECT_EQ(Begun().size(), 1u);
}

TEST_F(BatchLedgerTest, WhatWasGivenUpDoesNotHoldADrainingConnection) {
  Connect();
  const Submitted batch = Submit(64);
  Written();
  ledger_->Drain();
  EXPECT_FALSE(ledger_->ShouldHangUp());
  ledger_->Cancel(batch.number);
  EXPECT_TRUE(ledger_->ShouldHangUp());
}

}  // namespace
}  // namespace cpshard
