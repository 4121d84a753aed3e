#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/client/batch_ledger.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Interest = BatchLedger::Interest;

// --- frames

TEST_F(BatchLedgerTest, FramesOfABatchFillItFrontToBack) {
  Connect();
  Submit(5 * kMega);
  const std::vector<FrameToSend> frames = Written();
  ASSERT_EQ(frames.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(frames[i].wire_id, frames[0].wire_id);
    EXPECT_EQ(frames[i].seq, i);
    EXPECT_EQ(frames[i].offset, i * 2 * kMega);
    EXPECT_EQ(frames[i].size, i < 2 ? 2 * kMega : kMega);
    EXPECT_EQ(frames[i].last, i == 2);
    EXPECT_FALSE(frames[i].cancel);
    EXPECT_NE(frames[i].batch, nullptr);
  }
}

TEST_F(BatchLedgerTest, ASmallBatchIsOneFrameAndAnEmptyOneToo) {
  Connect();
  Submit(64);
  Submit(0);
  const std::vector<FrameToSend> frames = Written();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].size, 64);
  EXPECT_EQ(frames[1].size, 0);
  for (const FrameToSend& frame : frames) EXPECT_TRUE(frame.last && frame.seq == 0);
}

TEST_F(BatchLedgerTest, BodiesEndAtMultiplesOf64WithinTheServersChunk) {
  Connect({}, /*max_chunk_bytes=*/200);
  Submit(448);
  std::vector<int64_t> sizes;
  for (const FrameToSend& frame : Written()) sizes.push_back(frame.size);
  EXPECT_THAT(sizes, ElementsAre(192, 192, 64));
}

TEST_F(BatchLedgerTest, WithChecksumsALastFrameWithoutABodyFollows) {
  Make({.checksums = true});
  Connect();
  Submit(64);
  Submit(0);
  const std::vector<FrameToSend> frames = Written();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_FALSE(frames[0].last);
  EXPECT_TRUE(frames[1].last);
  EXPECT_EQ(frames[1].size, 0);
  EXPECT_EQ(frames[1].offset, 64);
  EXPECT_EQ(frames[1].seq, 1u);
  EXPECT_TRUE(frames[2].last);  // nothing to check
  EXPECT_EQ(frames[2].seq, 0u);
}

TEST_F(BatchLedgerTest, OneBatchIsWrittenBeforeTheNextInTheOrderOfSubmit) {
  Connect();
  std::vector<std::weak_ptr<const OutgoingBatch>> submitted;
  for (int i = 0; i < 3; ++i) submitted.push_back(Submit(3 * kMega).batch);
  const std::vector<FrameToSend> frames = Written();
  ASSERT_EQ(frames.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(frames[i].batch, submitted[i / 2].lock()) << i;
    EXPECT_EQ(frames[i].seq, i % 2) << i;
  }
}

TEST_F(BatchLedgerTest, WritesNothingWithoutAConnection) {
  Submit(64);
  EXPECT_THAT(Written(), IsEmpty());
  Connect();
  EXPECT_EQ(Written().size(), 1u);
  Lose();
  Submit(64);
  EXPECT_THAT(Written(), IsEmpty());
}

// --- credits

TEST_F(BatchLedgerTest, KeepsWithinTheBatchesOfTheCallerAndOfTheServer) {
  for (const auto& [mine, servers] : {std::pair(2, 10), std::pair(10, 2)}) {
    Make({.max_inflight_batches = mine});
    Connect({.max_inflight_batches = servers});
    for (int i = 0; i < 4; ++i) Submit(64);
    const std::vector<uint64_t> first = Begun();
    EXPECT_EQ(first.size(), 2u);
    Answer(first[1]);
    EXPECT_EQ(Begun().size(), 1u);
    Refuse(first[0], absl::InvalidArgumentError("no"));
    EXPECT_EQ(Begun().size(), 1u);
  }
}

TEST_F(BatchLedgerTest, ALimitThatTheServerDoesNotStateDoesNotHold) {
  Make({.max_inflight_batches = 3});
  Connect({.max_inflight_bytes = 0, .max_inflight_batches = 0}, /*max_chunk_bytes=*/0);
  for (int i = 0; i < 4; ++i) Submit(500 * kMega);
  EXPECT_EQ(Begun().size(), 3u);
}

TEST_F(BatchLedgerTest, KeepsWithinTheBytesOfTheServer) {
  Connect({.max_inflight_bytes = 10 * kMega});
  Submit(6 * kMega);
  Submit(4 * kMega);
  Submit(64);
  const std::vector<uint64_t> first = Begun();
  ASSERT_EQ(first.size(), 2u);
  Answer(first[1]);
  EXPECT_EQ(Begun().size(), 1u);
}

TEST_F(BatchLedgerTest, OneBatchAlwaysGoesHoweverLarge) {
  Connect({.max_inflight_bytes = kMega});
  Submit(5 * kMega);
  EXPECT_EQ(Begun().size(), 1u);
}

TEST_F(BatchLedgerTest, ALargeBatchThatWaitsForCreditIsNotOvertaken) {
  Connect({.max_inflight_bytes = 10 * kMega});
  Submit(2 * kMega);
  Submit(9 * kMega);
  Submit(64);
  const std::vector<uint64_t> first = Begun();
  ASSERT_EQ(first.size(), 1u);
  Answer(first[0]);
  EXPECT_EQ(Begun().size(), 2u);
}

TEST_F(BatchLedgerTest, ABatchThatWasGivenUpCountsUntilItsAnswerEnds) {
  for (const bool refused : {true, false}) {
    Make({.max_inflight_batches = 1});
    Connect();
    const Submitted first = Submit(64);
    Submit(64);
    const std::vector<uint64_t> ids = Begun();
    ASSERT_EQ(ids.size(), 1u);
    ledger_->Cancel(first.number);
    EXPECT_EQ(ledger_->InterestIn(ids[0]), Interest::kGivenUp);
    EXPECT_THAT(Begun(), IsEmpty());
    if (refused) {
      Refuse(ids[0], absl::CancelledError("cancel was sent"));
    } else {
      Answer(ids[0]);  // it was on its way already
    }
    EXPECT_EQ(Begun().size(), 1u);
    EXPECT_EQ(ledger_->stats().batches, 0);
  }
}

}  // namespace
}  // namespace cpshard
