#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/batch_ledger.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Interest = BatchLedger::Interest;

// --- answers

TEST_F(BatchLedgerTest, AnswersInAnyOrderFindTheirBatch) {
  Connect();
  std::vector<Submitted> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(Submit(64));
  const std::vector<uint64_t> ids = Begun();
  ASSERT_EQ(ids.size(), 3u);
  for (const size_t i : {2u, 0u, 1u}) {
    EXPECT_FALSE(batches[i].pending->done());
    EXPECT_EQ(ledger_->InterestIn(ids[i]), Interest::kWanted);
    ShardResult result;
    result.notices.push_back({"", std::to_string(i)});
    ledger_->Answered(ids[i], std::move(result));
    Settle();
    ASSERT_TRUE(batches[i].pending->done());
    EXPECT_EQ(batches[i].pending->Wait()->notices[0].text, std::to_string(i));
    EXPECT_EQ(ledger_->InterestIn(ids[i]), Interest::kUnknown);
  }
  EXPECT_EQ(ledger_->stats().batches, 3);
  EXPECT_EQ(ledger_->size(), 0u);
}

TEST_F(BatchLedgerTest, AClosedBatchLetsItsBytesGo) {
  Connect();
  const Submitted answered = Submit(64), refused = Submit(64), cancelled = Submit(64);
  const std::vector<uint64_t> ids = Begun();
  Answer(ids[0]);
  Refuse(ids[1], absl::InvalidArgumentError("no"));
  ledger_->Cancel(cancelled.number);
  Settle();
  EXPECT_TRUE(answered.batch.expired());
  EXPECT_TRUE(refused.batch.expired());
  EXPECT_TRUE(cancelled.batch.expired());
}

TEST_F(BatchLedgerTest, ARefusalIsTheAnswerOfItsBatchAlone) {
  Connect();
  const Submitted bad = Submit(64), good = Submit(64);
  const std::vector<uint64_t> ids = Begun();
  Refuse(ids[0], absl::InvalidArgumentError("stream 'labels' is wrong"));
  EXPECT_EQ(CodeOf(bad), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TextOf(bad), "stream 'labels' is wrong");
  EXPECT_FALSE(good.pending->done());
}

TEST_F(BatchLedgerTest, ABatchThatIsRefusedInTheMiddleIsBrokenOff) {
  Connect();
  const Submitted bad = Submit(6 * kMega);
  Submit(64);
  const std::optional<FrameToSend> begin = ledger_->NextFrame(now_);
  Refuse(begin->wire_id, absl::InvalidArgumentError("no"));
  EXPECT_EQ(CodeOf(bad), absl::StatusCode::kInvalidArgument);
  const std::vector<FrameToSend> rest = Written();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_TRUE(rest[0].cancel);
  EXPECT_EQ(rest[0].wire_id, begin->wire_id);
  EXPECT_EQ(rest[0].seq, 1u);
  EXPECT_EQ(rest[0].offset, 2 * kMega);
  EXPECT_FALSE(rest[1].cancel);
  EXPECT_NE(rest[1].wire_id, begin->wire_id);
}

TEST_F(BatchLedgerTest, AStatusForABatchThatIsNotUnderWayIsIgnored) {
  Connect();
  const Submitted batch = Submit(64);
  Refuse(Begun()[0] + 1, absl::InvalidArgumentError("a frame of no batch"));
  EXPECT_FALSE(batch.pending->done());
}

TEST_F(BatchLedgerTest, ABrokenAnswerFailsItsBatch) {
  Connect();
  const Submitted batch = Submit(64);
  ledger_->Fail(Begun()[0], absl::InternalError("frame 3: 7 bytes too many"));
  Settle();
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kInternal);
  EXPECT_EQ(TextOf(batch), "frame 3: 7 bytes too many");
}

TEST_F(BatchLedgerTest, ShardsThatWereNotAskedForAreNoAnswer) {
  const auto answer_of = [](const std::vector<int64_t>& ranks) {
    ShardResult result;
    for (const int64_t rank : ranks) result.shards.push_back({.layout = {.cp_rank = rank}});
    return result;
  };
  const auto code = [&](const ExpectedRanks& expected, const std::vector<int64_t>& ranks) {
    Connect();
    auto batch = std::make_shared<OutgoingBatch>();
    batch->expected = expected;
    Submitted submitted{0, std::make_shared<PendingBatch>(), batch};
    ledger_->Add(submitted.pending, std::move(batch), now_);
    ledger_->Answered(Begun().at(0), answer_of(ranks));
    Settle();
    return CodeOf(submitted);
  };
  using absl::StatusCode;
  EXPECT_EQ(code({{}, 3}, {0, 1, 2}), StatusCode::kOk);
  EXPECT_EQ(code({{2, 0}, 3}, {2, 0}), StatusCode::kOk);
  EXPECT_EQ(ledger_->stats().batches, 2);
  EXPECT_EQ(code({{}, 3}, {}), StatusCode::kInternal);
  EXPECT_EQ(code({{}, 3}, {0, 1}), StatusCode::kInternal);
  EXPECT_EQ(code({{}, 3}, {0, 1, 2, 3}), StatusCode::kInternal);
  EXPECT_EQ(code({{}, 3}, {0, 2, 1}), StatusCode::kInternal);
  EXPECT_EQ(code({{2, 0}, 3}, {0, 2}), StatusCode::kInternal);
  EXPECT_EQ(code({{1}, 3}, {0}), StatusCode::kInternal);
  EXPECT_EQ(ledger_->stats().batches, 2);
}

// Its buffers are large, and must not go under the owner's lock.
TEST_F(BatchLedgerTest, AnAnswerThatNobodyWantsAnyMoreLeavesWithTheClosedBatches) {
  Connect();
  const Submitted batch = Submit(64);
  const uint64_t id = Begun()[0];
  ledger_->Cancel(batch.number);
  Settle();
  auto owner = std::make_shared<int>(0);
  ShardResult answer;
  answer.shards.emplace_back().batch.tensors.emplace_back().buffer = Buffer(owner, nullptr, 0);
  ledger_->Answered(id, std::move(answer));
  EXPECT_EQ(owner.use_count(), 2);
  const std::vector<ClosedBatch> closed = ledger_->TakeClosed();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].pending, nullptr);
  EXPECT_EQ(closed[0].answer->shards.size(), 1u);
}

// --- again later

TEST_F(BatchLedgerTest, ABatchIsSentAgainAfterTheTimeThatTheServerNames) {
  Connect();
  const Submitted batch = Submit(64);
  const uint64_t first = Begun()[0];
  Refuse(first, absl::ResourceExhaustedError("no memory"), 100);
  EXPECT_FALSE(batch.pending->done());
  EXPECT_THAT(Written(), IsEmpty());
  EXPECT_GT(ledger_->NextEvent(now_), now_ + absl::Milliseconds(99));
  Pass(absl::Milliseconds(99));
  EXPECT_THAT(Written(), IsEmpty());
  Pass(absl::Milliseconds(26));  // a quarter of the time may come on top
  const std::vector<uint64_t> second = Begun();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_NE(second[0], first);  // what is still said about the first one does not concern it
  Answer(second[0]);
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kOk);
  EXPECT_EQ(ledger_->stats().resubmitted, 1);
}

TEST_F(BatchLedgerTest, OthersPassABatchThatWaitsToBeSentAgain) {
  Connect();
  Submit(64);
  Refuse(Begun()[0], absl::ResourceExhaustedError("no memory"), 100);
  const Submitted next = Submit(64);
  EXPECT_EQ(Written()[0].batch, next.batch.lock());
}

TEST_F(BatchLedgerTest, ARetryPastTheDeadlineIsNotWaitedFor) {
  Make({.deadline = absl::Seconds(1)});
  Connect();
  const Submitted batch = Submit(64);
  Refuse(Begun()[0], absl::ResourceExhaustedError("no memory"), 1000);
  EXPECT_EQ(CodeOf(batch), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(batch), HasSubstr("no memory"));
  EXPECT_THAT(TextOf(batch), HasSubstr("refused 1 times, the next try, after 1s"));
}

TEST_F(BatchLedgerTest, EveryRefusalMakesTheNextWaitLongerWhateverTheServerAsksFor) {
  Connect();
  Submit(64);
  for (const int expected_ms : {20, 40, 80, 160, 320, 640, 1280, 2000, 2000}) {
    const std::vector<uint64_t> ids = Begun();
    ASSERT_EQ(ids.size(), 1u) << expected_ms;
    Refuse(ids[0], absl::ResourceExhaustedError("full"), 0);
    const absl::Time again = ledger_->NextEvent(now_);
    EXPECT_GE(again, now_ + absl::Milliseconds(expected_ms));
    EXPECT_LE(again, now_ + absl::Milliseconds(expected_ms) * 1.25);
    Pass(again - now_);
  }
}

TEST_F(BatchLedgerTest, TheServersTimeHoldsWhereItIsLonger) {
  Connect();
  Submit(64);
  Refuse(Begun()[0], absl::ResourceExhaustedError("full"), 700);
  EXPECT_GE(ledger_->NextEvent(now_), now_ + absl::Milliseconds(700));
}

TEST_F(BatchLedgerTest, ARefusalDoesNotMakeTheWaitForAConnectionShort) {
  Submit(64);
  for (int i = 0; i < 8; ++i) {
    ledger_->Disconnected(absl::UnavailableError("refused"), "cannot connect", now_);
  }
  Connect();
  Refuse(Begun()[0], absl::ResourceExhaustedError("full"), 0);
  Lose();
  EXPECT_GE(ledger_->NextEvent(now_), now_ + absl::Seconds(1));
}

}  // namespace
}  // namespace cpshard
