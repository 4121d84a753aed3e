// What EncodeAnswer makes of a plan, read back and compared with what MakeShards and the plan say.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "tests/proto/answers.h"

namespace cpshard {
namespace {

TEST_F(AnswerTest, ShardsSurviveTheWire) {
  MakePlan(13, 4);
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(AllHeads(answer->heads).size(), 1u);
  const v1::ShardFrame message = Generic(*answer);
  EXPECT_EQ(message.begin().num_shards(), 4u);
  EXPECT_EQ(static_cast<int64_t>(message.begin().total_bytes()), answer->body.size);
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerTest, PackedDocumentsSurviveTheWire) {
  MakePackedPlan({8, 0, 16}, 2, 1);
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerTest, StackedChunksSurviveTheWireWithTheirAxis) {
  MakePackedPlan({8, 0, 16}, 4, 2);
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ExpectEverythingSurvives(*answer);
  const v1::ShardFrame message = Generic(*answer);
  for (const v1::Shard& shard : message.shards()) {
    const v1::Entry& ids = shard.entries(0);
    EXPECT_EQ(ids.name(), "input_ids");
    EXPECT_EQ(ids.seq_axis(), 1u);  // [2, 6]: two chunks, six slots
    EXPECT_EQ(ids.dims(1), 6);
  }
}

TEST_F(AnswerTest, EveryRankHasItsOwnScalars) {
  MakePackedPlan({8}, 2, 1);
  const v1::ShardFrame message = Generic(*Encode());
  for (int rank = 0; rank < 2; ++rank) {
    int found = 0;
    for (const v1::Entry& entry : message.shards(rank).entries()) {
      if (entry.name() != "cp_rank") continue;
      EXPECT_EQ(entry.scalar().int_value(), rank);
      ++found;
    }
    EXPECT_EQ(found, 1);
  }
}

TEST_F(AnswerTest, OfManyDocumentsIsAsLargeAsWasSaid) {
  MakePackedPlan(std::vector<double>(3000, 8), 2, 1);
  const auto said = CheckedAnswerBytes(plan_, ranks_, Limits());
  ASSERT_TRUE(said.ok()) << said.status();
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_LE(answer->body.size, *said + 64 * 40) << "64 bytes an output and array at most";
  EXPECT_GE(answer->body.size, *said - 64);  // input_row_shape is not in the count
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerTest, CountsNoLayoutsThatStayInTheHeads) {
  MakePlan(100, 2);
  EXPECT_EQ(*CheckedAnswerBytes(plan_, ranks_, Limits()),
            *CheckedOutputBytes(plan_, ranks_, Limits()));
}

TEST_F(AnswerTest, LayoutsOverTheLimitAreRefusedByTheirName) {
  MakePlan(8, 2);
  plan_.chunks[0].report.stream_positions = true;
  plan_.chunks[0].rows = int64_t{1} << 20;
  const Limits limits = {.max_batch_bytes = 8 << 20};
  const absl::Status status = CheckedAnswerBytes(plan_, ranks_, limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "layouts of 2 ranks")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "8388608")) << status;
}

TEST_F(AnswerTest, NoticesComeWithTheBegin) {
  MakePlan(8, 2);
  plan_.notices = {{"code", "text"}, {"other", ""}};
  const auto answer = Encode();
  const auto frames = FramesOf(AllHeads(answer->heads));
  ASSERT_TRUE(frames.at(0).begin);
  EXPECT_EQ(frames[0].begin->notices, plan_.notices);
}

TEST_F(AnswerTest, ItsBeginNamesTheExecutorThatMadeTheBody) {
  MakePlan(8, 2);
  auto body = ViewShards(plan_, batch_, ranks_, *executor_, pool_);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(body->executor, "cpu");
  body->executor = "cuda:3";
  const auto answer = EncodeAnswer(std::make_shared<const ShardPlan>(plan_), ranks_, AnyReport(),
                                   kAnswerDigest, *std::move(body), pool_);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(FramesOf(AllHeads(answer->heads)).at(0).begin->executor, "cuda:3");
}

TEST_F(AnswerTest, OnlyTheRanksThatWereAskedForAreAnswered) {
  MakePlan(13, 4);
  ranks_ = {3, 1};
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerTest, ManyRanksWithManyStreamsTakeSeveralHeads) {
  MakePlan(1000, 64, 200);
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::vector<std::string> heads = AllHeads(answer->heads);
  // 200 entries of at least 12 bytes in each of 64 shards.
  EXPECT_GE(heads.size(), 200u * 12 * 64 / 65536);
  for (size_t i = 0; i + 1 < heads.size(); ++i) {
    EXPECT_GT(heads[i].size(), 32u << 10) << "of head " << i;
  }
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerTest, ASmallLayoutStaysInItsHead) {
  MakePlan(100, 2);
  ReportPositions();
  const auto answer = Encode();
  const v1::ShardFrame message = Generic(*answer);
  for (const v1::Shard& shard : message.shards()) {
    EXPECT_EQ(shard.entries_size(), NumEntries());
    EXPECT_EQ(shard.layout().input_token_stream_positions().values_size(), 200);
  }
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerTest, ALargeLayoutLeavesItsArraysInTheBody) {
  MakePlan(9001, 4);
  const int64_t shards_end = PlaceShards(plan_, ranks_).size;
  ReportPositions();
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  const Buffer body = Joined(answer->body);
  std::set<uint64_t> positions, indices;
  const v1::ShardFrame message = Generic(*answer);
  for (const v1::Shard& shard : message.shards()) {
    const v1::ShardLayout& layout = shard.layout();
    EXPECT_LT(layout.ByteSizeLong(), 100u);
    EXPECT_TRUE(layout.has_input_row_shape() && layout.has_local_token_global_indices());
    EXPECT_EQ(layout.original_seq_len(), 9001);
    for (const v1::Entry& entry : shard.entries()) {
      if (!absl::StartsWith(entry.name(), "_layout.")) continue;
      EXPECT_EQ(entry.dtype(), v1::DTYPE_I64);
      EXPECT_EQ(entry.offset() % 64, 0u);
      EXPECT_GE(static_cast<int64_t>(entry.offset()), shards_end);
      const auto value = [&](size_t i) {
        int64_t value = 0;
        std::memcpy(&value, body.data() + entry.offset() + 8 * i, 8);
        return value;
      };
      if (entry.name() == "_layout.input_token_stream_positions") {
        positions.insert(entry.offset());
        EXPECT_EQ(entry.nbytes(), 2u * 9001 * 8);
        EXPECT_EQ(value(9000), 9000);  // the end of row 0,
        EXPECT_EQ(value(9001), 0);     // and the start of row 1
      } else if (entry.name() == "_layout.local_token_global_indices") {
        indices.insert(entry.offset());
        // 9001 columns are padded to 9008: 2252 a rank.
        EXPECT_EQ(entry.nbytes(), 2252u * 8);
        EXPECT_EQ(value(5), 2252 * layout.cp_rank() + 5);
      } else if (entry.name() == "_layout.runs") {
        EXPECT_EQ(entry.dims(1), 2);
        EXPECT_EQ(value(0), 2252 * layout.cp_rank());
        EXPECT_EQ(value(1), 2252);
      }
    }
  }
  EXPECT_EQ(positions.size(), 1u) << "the same for all ranks, so written once";
  EXPECT_EQ(indices.size(), 4u);
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerTest, ALayoutOf16KibibytesIsTheLastThatStaysInItsHead) {
  for (int64_t columns = 7000; columns < 9000; columns += 100) {
    MakePlan(columns, 1);
    plan_.chunks[0].report.indices = Report::Indices::kI64;
    v1::ShardLayout whole;  // the indices 0 ... padded - 1, and one run of all of them
    const int64_t padded = plan_.chunks[0].padded_len;
    whole.set_cp_size(1);
    whole.set_batch_digest(kAnswerDigest);
    whole.set_original_seq_len(columns);
    whole.set_padded_seq_len(padded);
    whole.mutable_local_token_global_indices()->add_shape(padded);
    for (int64_t i = 0; i < padded; ++i) {
      whole.mutable_local_token_global_indices()->add_values(i);
    }
    whole.add_runs()->set_length(padded);
    const auto answer = Encode();
    const v1::Shard shard = Generic(*answer).shards(0);
    EXPECT_EQ(shard.entries_size() == NumEntries(), whole.ByteSizeLong() <= 16384) << columns;
    ExpectEverythingSurvives(*answer);
  }
}

TEST_F(AnswerTest, AnAnswerWithoutMemoryForItsLayoutsIsRefused) {
  MakePlan(9001, 4);
  ReportPositions();
  auto body = ViewShards(plan_, batch_, ranks_, *executor_, pool_);
  BufferPool small({.max_bytes = 4096});
  const auto plan = std::make_shared<const ShardPlan>(plan_);
  EXPECT_EQ(EncodeAnswer(plan, ranks_, {}, kAnswerDigest, *std::move(body), small).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cpshard
