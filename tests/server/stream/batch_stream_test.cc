// What a stream takes, answers and refuses; its transport is elsewhere.
#include "server/stream/batch_stream.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/exec/device/emulated.h"
#include "tests/server/stream/stream_peer.h"

namespace cpshard {
namespace {

constexpr char kContiguous[] = R"({"contiguous": {}, "padding_token_id": 7})";
constexpr char kRoundRobin[] = R"({"round_robin": {}, "padding_token_id": 7})";
constexpr char kThd[] = R"({"thd": {}})";

// Two rows of documents of `lengths`, int64.
Batch PackedBatch(StreamPeer& peer, const std::vector<int64_t>& lengths) {
  int64_t columns = 0;
  for (int64_t length : lengths) columns += length;
  Batch batch = peer.MakeBatch(columns);
  Tensor positions = peer.MakeBatch(columns, 1).tensors[0];
  positions.spec.name = "position_ids";
  Tensor real = peer.MakeBatch(static_cast<int64_t>(lengths.size())).tensors[0];
  real.spec.name = "seq_lens";
  for (int64_t row = 0; row < 2; ++row) {
    std::memcpy(real.buffer.data() + row * lengths.size() * 8, lengths.data(), lengths.size() * 8);
  }
  batch.tensors.push_back(std::move(positions));
  batch.tensors.push_back(std::move(real));
  return batch;
}

class BatchStreamTest : public testing::Test {
 protected:
  void TearDown() override {
    if (peer == nullptr) return;
    peer->Work();
    peer->Receive();
    EXPECT_EQ(peer->pool.stats().buffers_out, 0u);
    EXPECT_EQ(peer->counters.batches, 0);
    peer->stream.reset();
    EXPECT_EQ(peer->counters.streams, 0);
  }

  void Connect(StreamLimits limits = {}, size_t pool_bytes = size_t{1} << 30) {
    peer = std::make_unique<StreamPeer>(limits, pool_bytes);
  }

  std::unique_ptr<StreamPeer> peer = std::make_unique<StreamPeer>();
};

TEST_F(BatchStreamTest, AnExecutorThatIsNotThereIsRefusedBeforeMemoryIsTaken) {
  const Batch batch = peer->MakeBatch(10);
  const auto frames = peer->FramesOf(3, batch, kRoundRobin, 2, 64, {}, ExecutorKind::kCuda);
  ASSERT_GT(frames.size(), 1u);
  peer->Send(frames[0]);
  EXPECT_EQ(peer->pool.stats().buffers_out, 0u);
  peer->ExpectError(3, absl::StatusCode::kFailedPrecondition, "no executor 'cuda'");
  EXPECT_FALSE(peer->replies[3].error->retry_after_ms);
  for (size_t i = 1; i < frames.size(); ++i) peer->Send(frames[i]);
  peer->SendAll(peer->FramesOf(4, batch, kRoundRobin, 2, 1 << 20, {}, ExecutorKind::kCpu));
  peer->ExpectShards(4, batch, kRoundRobin, 2);
}

TEST_F(BatchStreamTest, ABatchWhoseDeviceIsLostMayComeAgainOnceTheServerIsBack) {
  EmulatedDeviceOptions lost;
  lost.lose_after_launches = 1;
  peer = std::make_unique<StreamPeer>(StreamLimits(), size_t{1} << 30, Limits(),
                                      Place{MakeEmulatedDeviceExecutor(lost), "emulated", nullptr});
  const Batch batch = peer->MakeBatch(10);
  peer->SendAll(peer->FramesOf(1, batch, kRoundRobin, 2));
  peer->ExpectShards(1, batch, kRoundRobin, 2);
  for (const uint64_t id : {2, 3}) {
    peer->SendAll(peer->FramesOf(id, batch, kRoundRobin, 2));
    peer->ExpectError(id, absl::StatusCode::kUnavailable, "has lost emulated-device");
    EXPECT_TRUE(peer->replies[id].error->retry_after_ms);
  }
}

TEST_F(BatchStreamTest, AnswersABatchOfOneFrame) {
  const Batch batch = peer->MakeBatch(10);
  const auto frames = peer->FramesOf(3, batch, kRoundRobin, 2);
  ASSERT_EQ(frames.size(), 1u);
  peer->SendAll(frames);
  peer->ExpectShards(3, batch, kRoundRobin, 2);
  EXPECT_EQ(peer->replies[3].credit.batches, 1);
  EXPECT_EQ(peer->counters.batches_sharded, 1);
}

TEST_F(BatchStreamTest, AnswersABatchOfManyFrames) {
  const Batch batch = peer->MakeBatch(4000);
  const auto frames = peer->FramesOf(1, batch, kContiguous, 4, 64 * 100);
  ASSERT_GT(frames.size(), 10u);
  peer->SendAll(frames);
  peer->ExpectShards(1, batch, kContiguous, 4);
}

TEST_F(BatchStreamTest, ReadsTheLengthsOfDocumentsWhereverTheyLie) {
  const Batch batch = PackedBatch(*peer, {800, 8, 0, 1600});
  peer->SendAll(peer->FramesOf(1, batch, kThd, 4, 1024));
  peer->SendAll(peer->FramesOf(2, batch, kThd, 4, 1024, {"seq_lens"}));
  peer->ExpectShards(1, batch, kThd, 4);
  peer->ExpectShards(2, batch, kThd, 4);
}

TEST_F(BatchStreamTest, RefusesWrongLengthsAsSoonAsTheyHaveLanded) {
  const Batch batch = PackedBatch(*peer, {800, 6});
  const auto first = peer->FramesOf(1, batch, kThd, 2, 1024, {"seq_lens"});
  const auto last = peer->FramesOf(2, batch, kThd, 2, 1024);
  peer->Send(first[0]);
  peer->ExpectError(1, absl::StatusCode::kInvalidArgument, "row 0: document 1");
  for (size_t i = 0; i + 1 < last.size(); ++i) peer->Send(last[i]);
  EXPECT_EQ(peer->stream->batches(), 1) << "they are not there yet";
  peer->Send(last.back());
  peer->ExpectError(2, absl::StatusCode::kInvalidArgument, "row 0: document 1");
}

TEST_F(BatchStreamTest, CountsThePlanAndTheLayoutsToTheMemoryOfABatch) {
  const Batch batch = PackedBatch(*peer, std::vector<int64_t>(1000, 8));
  const auto frames = peer->FramesOf(1, batch, kThd, 2, 1 << 20, {"seq_lens"});
  peer->Send(frames[0]);
  const int64_t tokens = 2 * 8000, batch_bytes = tokens * 3 * 8 + 2 * 1000 * 8;
  const int64_t shards = tokens * (3 * 8 + 1 + 4);
  const int64_t layouts = tokens * 8 + 2 * 2000 * 16;  // an index a token; a run a document
  const int64_t documents = 2000 * 2 * 24;             // in the plan and in its inspection
  const int64_t plan = 2 * 2000 * 24 + documents;
  EXPECT_GE(peer->shares.held("peer"), batch_bytes + shards + layouts + plan);
  EXPECT_LE(peer->shares.held("peer"), batch_bytes + shards + layouts + plan + 64 * 1024);
  peer->ExpectShards(1, batch, kThd, 2);
}

TEST_F(BatchStreamTest, CutsALargeAnswerIntoFramesOfTwoMiB) {
  const Batch batch = peer->MakeBatch(200'000);
  peer->SendAll(peer->FramesOf(1, batch, kContiguous, 4));
  peer->ExpectShards(1, batch, kContiguous, 4);
  for (const ShardFrame& frame : peer->replies[1].frames) {
    EXPECT_EQ(frame.offset % 64, 0u);
    EXPECT_LE(frame.body.size, kChunkBytes);
  }
  EXPECT_GE(peer->replies[1].frames.size(), 4u);
}

TEST_F(BatchStreamTest, KeepsBatchesApartWhoseFramesAlternate) {
  const Batch a = peer->MakeBatch(1000, 1), b = peer->MakeBatch(1000, 2);
  const auto of_a = peer->FramesOf(1, a, kContiguous, 2, 1024);
  const auto of_b = peer->FramesOf(2, b, kRoundRobin, 4, 1024);
  for (size_t i = 0; i < of_a.size(); ++i) {
    peer->Send(of_a[i]);
    peer->Send(of_b[i]);
  }
  peer->ExpectShards(1, a, kContiguous, 2);
  peer->ExpectShards(2, b, kRoundRobin, 4);
}

TEST_F(BatchStreamTest, AnswersTheBatchThatIsCompleteFirst) {
  const Batch a = peer->MakeBatch(1000, 1), b = peer->MakeBatch(10, 2);
  const auto of_a = peer->FramesOf(1, a, kContiguous, 2, 1024);
  peer->Send(of_a[0]);
  peer->SendAll(peer->FramesOf(2, b, kContiguous, 2));
  peer->ExpectShards(2, b, kContiguous, 2);
  for (size_t i = 1; i < of_a.size(); ++i) peer->Send(of_a[i]);
  peer->ExpectShards(1, a, kContiguous, 2);
}

TEST_F(BatchStreamTest, TakesAnIdAgainOnceItsBatchIsAnswered) {
  for (int64_t seed = 1; seed < 4; ++seed) {
    const Batch batch = peer->MakeBatch(20, seed);
    peer->replies.clear();
    peer->SendAll(peer->FramesOf(9, batch, kContiguous, 2));
    peer->ExpectShards(9, batch, kContiguous, 2);
  }
}

TEST_F(BatchStreamTest, RefusesWhatCannotBePlannedAtItsFirstFrame) {
  const Batch batch = peer->MakeBatch(1001);  // identity does not pad
  auto frames = peer->FramesOf(1, batch, R"({"qwen3_8": {"tp_size": 2}})", 2, 1024);
  peer->Send(frames[0]);
  peer->ExpectError(1, absl::StatusCode::kUnimplemented, "tp_size");
  EXPECT_EQ(peer->pool.stats().buffers_out, 0u) << "no memory for a batch that is refused";
}

TEST_F(BatchStreamTest, DropsTheRestOfARefusedBatchInSilence) {
  const Batch batch = peer->MakeBatch(1000);
  auto frames = peer->FramesOf(1, batch, kContiguous, 2, 1024);
  frames[1].frame.frame_seq = 5;
  peer->SendAll(frames);
  peer->ExpectError(1, absl::StatusCode::kDataLoss, "frame_seq 5");
  EXPECT_EQ(peer->replies[1].frames.size(), 1u);
  peer->replies.clear();
  peer->SendAll(peer->FramesOf(1, batch, kContiguous, 2));  // the id is free again
  peer->ExpectShards(1, batch, kContiguous, 2);
}

TEST_F(BatchStreamTest, ABeginUnderARefusedIdStartsAnew) {
  const Batch batch = peer->MakeBatch(1000);
  auto frames = peer->FramesOf(1, batch, kContiguous, 2, 1024);
  peer->Send(frames[0]);
  peer->Send(frames[2]);  // and the last frame never comes
  peer->ExpectError(1, absl::StatusCode::kDataLoss, "missing");
  peer->replies.clear();
  peer->SendAll(peer->FramesOf(1, batch, kContiguous, 2));
  peer->ExpectShards(1, batch, kContiguous, 2);
}

TEST_F(BatchStreamTest, RefusesASecondBeginOfABatchThatIsReceived) {
  const Batch batch = peer->MakeBatch(1000);
  auto frames = peer->FramesOf(1, batch, kContiguous, 2, 1024);
  peer->Send(frames[0]);
  peer->Send(frames[0]);
  peer->ExpectError(1, absl::StatusCode::kInvalidArgument, "begun again");
}

TEST_F(BatchStreamTest, RefusesABeginWhileTheAnswerIsOnItsWay) {
  const Batch batch = peer->MakeBatch(400'000);  // an answer of several frames
  const auto frames = peer->FramesOf(1, batch, kContiguous, 2);
  peer->SendAll(frames);
  peer->Work();
  ASSERT_TRUE(peer->stream->NextFrame(peer->now));  // one is out
  peer->Send(frames[0]);
  std::optional<OutFrame> out = peer->stream->NextFrame(peer->now);
  ASSERT_TRUE(out);
  const ShardFrame frame =
      DecodeShardFrame(
          {Bytes(reinterpret_cast<const std::byte*>(out->header.data()), out->header.size())})
          .value();
  ASSERT_TRUE(frame.error);
  EXPECT_EQ(frame.frame_seq, 1u);
  EXPECT_EQ(frame.error->status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BatchStreamTest, RefusesFramesAfterTheLastOne) {
  const Batch batch = peer->MakeBatch(1000);
  auto frames = peer->FramesOf(1, batch, kContiguous, 2, 1024);
  peer->SendAll(frames);
  peer->Send(frames.back());
  peer->ExpectError(1, absl::StatusCode::kInvalidArgument, "after the last frame");
}

TEST_F(BatchStreamTest, ChecksTheBodyBeforeByItsChecksum) {
  const Batch batch = peer->MakeBatch(1000);
  auto frames = peer->FramesOf(1, batch, kContiguous, 2, 1024);
  frames[1].frame.crc32c = 0x12345678;
  peer->SendAll(frames);
  peer->ExpectError(1, absl::StatusCode::kDataLoss, "0x12345678");
}

TEST_F(BatchStreamTest, HoldsAStreamToItsLimitsButTakesOneBatchOfAnySize) {
  Connect({.max_inflight_bytes = 1000, .max_inflight_batches = 2});
  const Batch large = peer->MakeBatch(1000), small = peer->MakeBatch(10, 2);
  const auto of_large = peer->FramesOf(1, large, kContiguous, 2, 1024);
  peer->Send(of_large[0]);
  peer->SendAll(peer->FramesOf(2, small, kContiguous, 2));
  peer->ExpectError(2, absl::StatusCode::kResourceExhausted, "1000 bytes");
  EXPECT_TRUE(peer->replies[2].error->retry_after_ms);
  for (size_t i = 1; i < of_large.size(); ++i) peer->Send(of_large[i]);
  peer->ExpectShards(1, large, kContiguous, 2);
  peer->replies.clear();
  for (uint64_t id : {1, 2, 3}) peer->SendAll(peer->FramesOf(id, small, kContiguous, 2));
  peer->ExpectShards(1, small, kContiguous, 2);
  peer->ExpectShards(2, small, kContiguous, 2);
  peer->ExpectError(3, absl::StatusCode::kResourceExhausted, "2 batches");
}

TEST_F(BatchStreamTest, SaysWhetherMemoryThatIsLackingMayComeBack) {
  Connect({}, 1 << 20);
  const Batch batch = peer->MakeBatch(20'000), huge = peer->MakeBatch(200'000);
  {
    const Buffer of_others = peer->pool.Allocate(600'000).value();
    peer->SendAll(peer->FramesOf(1, batch, kContiguous, 2));
    peer->ExpectError(1, absl::StatusCode::kResourceExhausted, "buffer pool");
    EXPECT_TRUE(peer->replies[1].error->retry_after_ms);
  }
  peer->SendAll(peer->FramesOf(2, huge, kContiguous, 2));
  peer->ExpectError(2, absl::StatusCode::kFailedPrecondition, "pool_bytes");
  EXPECT_FALSE(peer->replies[2].error->retry_after_ms);
}

TEST_F(BatchStreamTest, FinishesWhatItHasWhileItDrains) {
  const Batch batch = peer->MakeBatch(1000);
  const auto frames = peer->FramesOf(1, batch, kContiguous, 2, 1024);
  peer->Send(frames[0]);
  peer->stream->Drain();
  peer->SendAll(peer->FramesOf(2, batch, kContiguous, 2));
  peer->ExpectError(2, absl::StatusCode::kUnavailable, "shutting down");
  EXPECT_TRUE(peer->replies[2].error->retry_after_ms);
  EXPECT_TRUE(peer->told_draining);
  peer->stream->EndIfIdle(absl::UnavailableError("going"));
  EXPECT_FALSE(peer->stream->Ended()) << "a batch is under way";
  for (size_t i = 1; i < frames.size(); ++i) peer->Send(frames[i]);
  peer->ExpectShards(1, batch, kContiguous, 2);
  peer->stream->EndIfIdle(absl::UnavailableError("going"));
  EXPECT_EQ(peer->stream->Ended(), absl::UnavailableError("going"));
}

TEST_F(BatchStreamTest, GivesUpABatchOfWhichNothingComes) {
  const Batch batch = peer->MakeBatch(1000);
  peer->Send(peer->FramesOf(1, batch, kContiguous, 2, 1024)[0]);
  peer->stream->Expire(peer->now + absl::Seconds(29));
  EXPECT_EQ(peer->stream->batches(), 1);
  peer->stream->Expire(peer->now + absl::Seconds(31));
  peer->ExpectError(1, absl::StatusCode::kDeadlineExceeded, "30s");
  peer->SendAll(peer->FramesOf(2, batch, kContiguous, 2));
  peer->ExpectShards(2, batch, kContiguous, 2);
}

TEST_F(BatchStreamTest, TakesOnlyBytesForProgress) {
  const Batch batch = peer->MakeBatch(1000);
  const auto frames = peer->FramesOf(1, batch, kContiguous, 2, 1024);
  peer->Send(frames[0]);
  const absl::Time start = peer->now;
  BatchFrame empty;
  empty.batch_id = 1;
  for (empty.frame_seq = 1; empty.frame_seq < 4; ++empty.frame_seq) {
    peer->now += absl::Seconds(9);
    peer->Send(EncodeBatchFrame(empty, "", 0));
  }
  peer->stream->Expire(start + absl::Seconds(30));
  peer->ExpectError(1, absl::StatusCode::kDeadlineExceeded, "30s");
}

TEST_F(BatchStreamTest, GivesUpABatchThatComesTooSlowly) {
  const Batch batch = peer->MakeBatch(200'000);  // 6.4 MB: 120 s and some 6 s at 1 MiB/s
  const auto frames = peer->FramesOf(1, batch, kContiguous, 2, 64 << 10);
  for (int i = 0; i < 6; ++i) {
    peer->Send(frames[i]);
    peer->now += absl::Seconds(21);
    peer->stream->Expire(peer->now);
  }
  EXPECT_EQ(peer->stream->batches(), 1);
  peer->Send(frames[6]);
  peer->now += absl::Seconds(1);
  peer->stream->Expire(peer->now);
  peer->ExpectError(1, absl::StatusCode::kDeadlineExceeded, "did not come within");
}

TEST_F(BatchStreamTest, SaysWhenAnAnswerShouldBeThrough) {
  const Batch batch = peer->MakeBatch(400'000);  // 12.8 MB
  peer->SendAll(peer->FramesOf(1, batch, kContiguous, 2));
  peer->Work();
  EXPECT_EQ(peer->stream->OutputDue(), absl::InfiniteFuture());
  ASSERT_TRUE(peer->stream->NextFrame(peer->now));
  // 19.2 MB, for positions are made: 18.3 s at 1 MiB/s beside the stall time.
  EXPECT_GE(peer->stream->OutputDue(), peer->now + absl::Seconds(138));
  EXPECT_LE(peer->stream->OutputDue(), peer->now + absl::Seconds(139));
  while (peer->stream->NextFrame(peer->now)) {
  }
  EXPECT_EQ(peer->stream->OutputDue(), absl::InfiniteFuture());
}

TEST_F(BatchStreamTest, ShardsSmallBatchesAtOnceAndLargeOnesOnWorkers) {
  peer->SendAll(peer->FramesOf(1, peer->MakeBatch(100), kContiguous, 2));
  EXPECT_TRUE(peer->waiting.empty());
  peer->Receive();
  EXPECT_TRUE(peer->replies[1].complete);
  peer->SendAll(peer->FramesOf(2, peer->MakeBatch(100'000), kContiguous, 2));
  EXPECT_EQ(peer->waiting.size(), 1u);
}

TEST_F(BatchStreamTest, MakesNoMoreLargeAnswersThanItsLimitUntilTheyHaveLeft) {
  Connect({.max_inflight_bytes = 4 << 20, .max_inflight_batches = 8});
  const std::string padded = R"({"contiguous": {"pad_multiple": 50000}, "padding_token_id": 7})";
  const Batch batch = peer->MakeBatch(7);  // 3.2 MB of padding for every rank's shards together
  for (uint64_t id = 1; id <= 4; ++id) peer->SendAll(peer->FramesOf(id, batch, padded, 2));
  peer->Work();
  EXPECT_LE(peer->pool.stats().bytes_out, size_t{8} << 20) << "one answer, not four";
  for (uint64_t id = 1; id <= 4; ++id) peer->ExpectShards(id, batch, padded, 2);
}

TEST_F(BatchStreamTest, LeavesMemoryToOtherConnections) {
  Connect({}, 8 << 20);                          // a share is 4 MiB
  const Batch batch = peer->MakeBatch(100'000);  // 3.2 MB, and as much for its answer
  const auto first = peer->FramesOf(1, batch, kContiguous, 2, 1 << 20);
  peer->Send(first[0]);  // alone it may take what it needs
  peer->SendAll(peer->FramesOf(2, batch, kContiguous, 2));
  peer->ExpectError(2, absl::StatusCode::kResourceExhausted, "share of 4194304");
  EXPECT_TRUE(peer->replies[2].error->retry_after_ms);
  for (size_t i = 1; i < first.size(); ++i) peer->Send(first[i]);
  peer->ExpectShards(1, batch, kContiguous, 2);
  EXPECT_EQ(peer->shares.held("peer"), 0);
}

TEST_F(BatchStreamTest, DropsTheRestOfABatchThatIsBegunAgainInOneFrame) {
  const auto frames = peer->FramesOf(1, peer->MakeBatch(1000), kContiguous, 2, 1024);
  const auto whole = peer->FramesOf(1, peer->MakeBatch(10), kContiguous, 2);
  peer->Send(frames[0]);
  peer->SendAll(whole);
  for (size_t i = 1; i < frames.size(); ++i) peer->Send(frames[i]);
  peer->ExpectError(1, absl::StatusCode::kInvalidArgument, "begun again");
  EXPECT_EQ(peer->replies[1].frames.size(), 1u);
}

TEST_F(BatchStreamTest, LetsGoOfACancelledBatchInEveryPhase) {
  const Batch batch = peer->MakeBatch(400'000);
  BatchFrame cancel;
  cancel.cancel = true;
  for (int phase = 0; phase < 5; ++phase) {
    peer->replies.clear();
    cancel.batch_id = phase + 1;
    const auto frames = peer->FramesOf(cancel.batch_id, batch, kContiguous, 2);
    if (phase == 0) peer->Send(frames[0]);                     // receiving
    if (phase >= 1) peer->SendAll(frames);                     // waits for a worker
    if (phase >= 2) peer->Work();                              // is to be sent
    if (phase == 3) (void)peer->stream->NextFrame(peer->now);  // is being sent
    if (phase >= 4) peer->Receive();                           // is answered: too late
    peer->Send(EncodeBatchFrame(cancel, "", 0));
    peer->Work();
    if (phase < 4) {
      std::optional<OutFrame> out = peer->stream->NextFrame(peer->now);
      ASSERT_TRUE(out) << phase;
      const Bytes header(reinterpret_cast<const std::byte*>(out->header.data()),
                         out->header.size());
      EXPECT_EQ(DecodeShardFrame({header})->error->status.code(), absl::StatusCode::kCancelled);
    }
    EXPECT_FALSE(peer->stream->NextFrame(peer->now)) << phase;
    EXPECT_EQ(peer->pool.stats().buffers_out, 0u) << phase;
  }
}

TEST_F(BatchStreamTest, LetsGoOfEverythingWhenThePeerIsGone) {
  const Batch batch = peer->MakeBatch(1000);
  peer->Send(peer->FramesOf(1, batch, kContiguous, 2, 1024)[0]);
  peer->SendAll(peer->FramesOf(2, batch, kContiguous, 2));
  peer->Work();
  peer->SendAll(peer->FramesOf(3, batch, kContiguous, 2));  // waits for a worker
  peer->stream->Abandon();
  peer->Work();
  EXPECT_EQ(peer->pool.stats().buffers_out, 0u);
  EXPECT_FALSE(peer->stream->NextFrame(peer->now));
  EXPECT_EQ(peer->stream->Ended()->code(), absl::StatusCode::kCancelled);
}

TEST_F(BatchStreamTest, EndsOnlyAfterTheAnswersWhenAMessageIsGarbage) {
  const Batch batch = peer->MakeBatch(10);
  peer->SendAll(peer->FramesOf(1, batch, kContiguous, 2));
  peer->Send("\xff\xff\xff\xff garbage");
  EXPECT_FALSE(peer->stream->WantsInput());
  EXPECT_FALSE(peer->stream->Ended());
  peer->ExpectShards(1, batch, kContiguous, 2);
  ASSERT_TRUE(peer->stream->Ended());
  EXPECT_EQ(peer->stream->Ended()->code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BatchStreamTest, RefusesABatchThatTheStreamEndsIn) {
  const Batch batch = peer->MakeBatch(1000);
  peer->Send(peer->FramesOf(1, batch, kContiguous, 2, 1024)[0]);
  peer->stream->OnInputEnd();
  peer->ExpectError(1, absl::StatusCode::kInvalidArgument, "1024 of");
  EXPECT_EQ(peer->stream->Ended(), absl::OkStatus());
}

TEST_F(BatchStreamTest, StopsReadingWhileManyAnswersWait) {
  const Batch batch = peer->MakeBatch(10);
  uint64_t id = 0;
  while (peer->stream->WantsInput() && id < 1000) {
    peer->SendAll(peer->FramesOf(++id, batch, kContiguous, 2));
    peer->Work();
  }
  EXPECT_EQ(id, 64u);
  peer->Receive();
  EXPECT_TRUE(peer->stream->WantsInput());
}

TEST_F(BatchStreamTest, EndsWhenTooManyRefusedBatchesNeverEnd) {
  BatchFrame stray;
  stray.frame_seq = 1;
  for (stray.batch_id = 1; stray.batch_id <= 1100; ++stray.batch_id) {
    peer->Send(EncodeBatchFrame(stray, "", 0));
    peer->Receive();
  }
  ASSERT_TRUE(peer->stream->Ended());
  EXPECT_EQ(peer->stream->Ended()->code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cpshard
