#include "client/incoming_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/plan/layouts.h"
#include "cpshard/v1/service.pb.h"
#include "tests/batch/tensors.h"
#include "tests/proto/spans.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBound = 1 << 20;

// Frames of the kind that a server sends, but for shards: those are read by ReadShards, which has
// tests of its own.
class IncomingAnswerTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(pool_.stats().buffers_out, 0u); }

  static ShardFrame Begin(int64_t num_shards, int64_t total_bytes) {
    v1::ShardFrame message;
    message.set_batch_id(7);
    message.mutable_begin()->set_num_shards(num_shards);
    const std::string bytes = message.SerializeAsString();
    ShardFrame frame = DecodeShardFrame({AsBytes(bytes)}).value();
    frame.begin->total_bytes = total_bytes;
    return frame;
  }

  static ShardFrame Piece(uint32_t seq, uint64_t offset, absl::string_view body,
                          bool last = false) {
    ShardFrame frame{.batch_id = 7, .frame_seq = seq, .offset = offset, .last = last};
    AddBody(frame, body);
    return frame;
  }

  static void AddBody(ShardFrame& frame, absl::string_view body) {
    frame.body.size = static_cast<int64_t>(body.size());
    if (!body.empty()) frame.body.pieces = {AsBytes(body)};
  }

  // The text of the refusal of the last of these frames; the others must be taken.
  std::string Refusal(std::vector<ShardFrame> frames) {
    IncomingAnswer answer(kBound, &pool_);
    for (size_t i = 0; i + 1 < frames.size(); ++i) {
      const absl::Status status = answer.Take(frames[i]);
      EXPECT_TRUE(status.ok()) << i << ": " << status;
    }
    const absl::Status status = answer.Take(frames.back());
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    return std::string(status.message());
  }

  BufferPool pool_;
};

TEST_F(IncomingAnswerTest, BodiesLandOneAfterTheOther) {
  IncomingAnswer answer(kBound, &pool_);
  ASSERT_TRUE(answer.Take(Begin(0, 6)).ok());
  EXPECT_FALSE(answer.complete());
  ASSERT_TRUE(answer.Take(Piece(1, 0, "abc")).ok());
  ASSERT_TRUE(answer.Take(Piece(2, 3, "def", /*last=*/true)).ok());
  EXPECT_TRUE(answer.complete());
  const absl::StatusOr<ShardResult> shards = answer.Finish();
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_TRUE(shards->shards.empty());
}

TEST_F(IncomingAnswerTest, AnAnswerOfOneFrameIsComplete) {
  ShardFrame frame = Begin(0, 3);
  AddBody(frame, "abc");
  frame.begin->notices = {{"code", "text"}};
  frame.last = true;
  IncomingAnswer answer(kBound, &pool_);
  ASSERT_TRUE(answer.Take(std::move(frame)).ok());
  EXPECT_EQ(answer.Finish()->notices, (std::vector<Notice>{{"code", "text"}}));
}

TEST_F(IncomingAnswerTest, NamesTheNumbersOfWhatCannotCome) {
  EXPECT_EQ(Refusal({Begin(0, 6), Piece(2, 0, "abc")}),
            "broken answer to batch 7, frame 2: frame 1 was expected");
  EXPECT_EQ(Refusal({Begin(0, 6), Piece(1, 0, "abc"), Piece(1, 0, "abc")}),
            "broken answer to batch 7, frame 1: frame 2 was expected");
  EXPECT_EQ(Refusal({Piece(0, 0, "abc")}), "broken answer to batch 7, frame 0: it has no begin");
  EXPECT_EQ(Refusal({Begin(0, 6), Piece(1, 1, "abc")}),
            "broken answer to batch 7, frame 1: its body lies at 1, the one before ended at 0");
  EXPECT_EQ(Refusal({Begin(0, 2), Piece(1, 0, "abc")}),
            "broken answer to batch 7, frame 1: 3 bytes at 0 leave the buffer of 2");
  EXPECT_EQ(Refusal({Begin(0, 6), Piece(1, 0, "abc", /*last=*/true)}),
            "broken answer to batch 7, frame 1: it is the last, after 0 of 0 shards and 3 of 6 "
            "bytes");
  EXPECT_EQ(Refusal({Begin(2, 6), Piece(1, 0, "abc")}),
            "broken answer to batch 7, frame 1: a body after 0 of 2 shards");
  ShardFrame again = Begin(0, 6);
  again.frame_seq = 1;
  EXPECT_EQ(Refusal({Begin(0, 6), again}), "broken answer to batch 7, frame 1: a second begin");
  ShardFrame heads = Piece(1, 0, "");
  heads.num_shards = 2;
  EXPECT_EQ(Refusal({Begin(1, 6), heads}),
            "broken answer to batch 7, frame 1: 2 shards, 1 were announced");
  EXPECT_EQ(Refusal({Begin(0, 0), Piece(1, 0, "", true), Piece(2, 0, "", true)}),
            "broken answer to batch 7, frame 2: the answer is complete");
}

TEST_F(IncomingAnswerTest, ASizeThatCannotBeIsRefusedBeforeMemoryIsTaken) {
  for (const int64_t total : {kBound + 1, int64_t{1} << 40, int64_t{-1}}) {
    EXPECT_THAT(Refusal({Begin(1, total)}),
                HasSubstr(std::to_string(total) + " bytes; at most 1048576 can be"));
  }
}

TEST_F(IncomingAnswerTest, SaysWhenThePoolHasNoRoom) {
  BufferPool small({.max_bytes = 4096});
  IncomingAnswer answer(kBound, &small);
  EXPECT_EQ(answer.Take(Begin(1, 10'000)).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(IncomingAnswerTest, PiecesOfSeveralAnswersMayAlternate) {
  IncomingAnswers answers(&pool_);
  answers.SetBound(kBound);
  const auto of = [](uint64_t id, ShardFrame frame) {
    frame.batch_id = id;
    return frame;
  };
  EXPECT_FALSE(answers.Take(of(1, Begin(0, 3)))->has_value());
  EXPECT_FALSE(answers.Take(of(2, Begin(0, 3)))->has_value());
  EXPECT_FALSE(answers.Take(of(3, Begin(0, 3)))->has_value());
  EXPECT_EQ(pool_.stats().buffers_out, 3u);
  answers.Drop(3);
  EXPECT_TRUE(answers.Take(of(2, Piece(1, 0, "abc", true)))->has_value());
  EXPECT_TRUE(answers.Take(of(1, Piece(1, 0, "abc", true)))->has_value());
  EXPECT_EQ(pool_.stats().buffers_out, 0u);
}

TEST_F(IncomingAnswerTest, ABrokenAnswerIsDropped) {
  IncomingAnswers answers(&pool_);
  answers.SetBound(kBound);
  EXPECT_TRUE(answers.Take(Begin(0, 3)).ok());
  EXPECT_FALSE(answers.Take(Piece(5, 0, "abc")).ok());
  EXPECT_EQ(pool_.stats().buffers_out, 0u);
}

// From the server's encoder to shards, in frames cut anywhere.
TEST_F(IncomingAnswerTest, ShardsComeOutAsTheServerMadeThem) {
  const Batch batch = {{TensorOf<int64_t>("input_ids", DType::kI64, {1, 4}, {10, 11, 12, 13}),
                        TensorOf<int64_t>("labels", DType::kI64, {1, 4}, {20, 21, 22, 23})},
                       {{"qkv_format", std::string("bshd")}}};
  const std::unique_ptr<Executor> executor = MakeCpuExecutor();
  const std::vector<int64_t> ranks = {0, 1};
  const auto plan =
      std::make_shared<const ShardPlan>(PlanBatch(RoundRobin({}, {}), batch, 2).value());
  ShardBody body = ViewShards(*plan, batch, ranks, *executor, pool_).value();
  BatchReport report = ReportOf(InspectBatch(*plan, SpecOf(batch, 2), batch), ranks);
  Answer encoded = EncodeAnswer(plan, ranks, std::move(report), 99, std::move(body), pool_).value();
  std::string bytes;
  for (const Buffer& piece : encoded.body.pieces) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }

  IncomingAnswer answer(kBound, &pool_);
  uint32_t seq = 0;
  const auto take = [&](ShardFrame frame, const std::string& head, const std::string& piece) {
    frame.frame_seq = seq++;
    const std::string message = EncodeShardFrame(frame, head, piece.size()) + piece;
    absl::StatusOr<ShardFrame> read = DecodeShardFrame({AsBytes(message)});
    ASSERT_TRUE(read.ok()) << read.status();
    const absl::Status status = answer.Take(*std::move(read));
    ASSERT_TRUE(status.ok()) << status;
  };
  while (!encoded.heads.done()) take({}, encoded.heads.Next(), "");
  for (size_t at = 0; at < bytes.size(); at += 64) {
    take({.offset = at, .last = at + 64 >= bytes.size()}, "", bytes.substr(at, 64));
  }
  ASSERT_TRUE(answer.complete());
  const absl::StatusOr<ShardResult> result = answer.Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  ShardResult expected = MakeShards(*plan, batch, ranks, *executor, pool_).value();
  AddReport(*plan, batch, expected);
  ASSERT_EQ(result->shards.size(), 2u);
  EXPECT_EQ(result->totals, expected.totals);
  EXPECT_EQ(result->totals.num_label_tokens, 4);
  EXPECT_EQ(result->notices, expected.notices);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(result->shards[r].load, expected.shards[r].load);
    EXPECT_EQ(result->shards[r].layout.batch_digest, 99u);
    const Batch& shard = result->shards[r].batch;
    EXPECT_EQ(shard.scalars, batch.scalars);
    ASSERT_EQ(shard.tensors.size(), expected.shards[r].batch.tensors.size());
    for (size_t t = 0; t < shard.tensors.size(); ++t) {
      EXPECT_EQ(shard.tensors[t].spec, expected.shards[r].batch.tensors[t].spec);
      EXPECT_EQ(shard.tensors[t].bytes(), expected.shards[r].batch.tensors[t].bytes());
    }
  }
}

}  // namespace
}  // namespace cpshard
