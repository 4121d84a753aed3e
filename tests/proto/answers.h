// Answers written down in tests: a plan, its shards, and the way over the wire and back.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/plan/layouts.h"
#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "tests/exec/batches.h"
#include "tests/proto/spans.h"

namespace cpshard {

inline constexpr uint64_t kAnswerDigest = 0x1234567890abcdef;

class AnswerTest : public ShardTest {
 protected:
  // Two rows of `columns` tokens, padded to 8 more than that at most.
  void MakePlan(int64_t columns, int64_t cp_size, int more_streams = 0) {
    batch_.tensors = {Tokens("input_ids", 2, columns), Tokens("labels", 2, columns, DType::kI32),
                      TensorOf("empty", DType::kF32, {0, 3}, {}),
                      TensorOf("whole", DType::kU8, {3}, {1, 2, 3})};
    SharedOptions shared;
    shared.padding_token_id = 0;
    for (int i = 0; i < more_streams; ++i) {
      batch_.tensors.push_back(TensorOf(absl::StrCat("more", i), DType::kBool, {1}, {1}));
    }
    batch_.scalars = {{"note", "text"}};
    plan_ = *PlanBatch(Contiguous({}, shared), batch_, cp_size);
    ranks_ = *ResolveRanks({}, cp_size);
  }

  // One stream of packed documents, of two rows in as many chunks.
  void MakePackedPlan(const std::vector<double>& lengths, int64_t cp_size, int64_t num_chunks) {
    int64_t length = 0;
    for (double each : lengths) length += static_cast<int64_t>(each);
    const auto documents = static_cast<int64_t>(lengths.size());
    std::vector<double> both = lengths;
    both.insert(both.end(), lengths.begin(), lengths.end());
    batch_.tensors = {Tokens("input_ids", 2, length), Tokens("labels", 2, length, DType::kI32),
                      Tokens("position_ids", 2, length, DType::kI16),
                      TensorOf("seq_lens", DType::kI64, {2, documents}, both)};
    plan_ = *PlanBatch(Thd({.num_chunks = num_chunks}), batch_, cp_size);
    ranks_ = *ResolveRanks({}, cp_size);
  }

  // As the layouts of rows with holes will have it.
  void ReportPositions() {
    Report& report = plan_.chunks.at(0).report;
    report.stream_positions = true;
    report.indices = Report::Indices::kI64;
    report.input_row_shape = RowShape{2, plan_.chunks[0].source_len};
  }

  absl::StatusOr<Answer> Encode() {
    auto body = ViewShards(plan_, batch_, ranks_, *executor_, pool_);
    EXPECT_TRUE(body.ok()) << body.status();
    return EncodeAnswer(std::make_shared<const ShardPlan>(plan_), ranks_, AnyReport(),
                        kAnswerDigest, *std::move(body), pool_);
  }

  // Numbers that no other rank and no other field has.
  BatchReport AnyReport() const {
    BatchReport report;
    report.notices = plan_.notices;
    report.totals.num_label_tokens = 901;
    report.totals.tokens = {902, 903, 904};
    report.totals.documents_from = "lengths";
    for (int64_t rank : ranks_) {
      report.loads.push_back({{1000 + rank, 2000 + rank, 3000 + rank}, 0.5 + rank, {}, {}, {}});
    }
    return report;
  }

  static std::vector<std::string> AllHeads(AnswerHeads heads) {
    std::vector<std::string> all;
    while (!heads.done()) {
      all.push_back(heads.Next());
      EXPECT_FALSE(all.back().empty());
      EXPECT_LE(static_cast<int64_t>(all.back().size()), kMaxHeadBytes);
    }
    return all;
  }

  // The pieces as one buffer.
  static Buffer Joined(const ShardBody& body) {
    auto bytes = std::make_shared<std::vector<std::byte>>();
    for (const Buffer& piece : body.pieces) {
      EXPECT_GT(piece.size(), 0u);
      bytes->insert(bytes->end(), piece.data(), piece.data() + piece.size());
    }
    EXPECT_EQ(static_cast<int64_t>(bytes->size()), body.size);
    std::byte* data = bytes->data();
    const size_t size = bytes->size();
    return Buffer(std::move(bytes), data, size);
  }

  // The frames of the heads, as sent and read.
  static std::vector<ShardFrame> FramesOf(const std::vector<std::string>& heads) {
    std::vector<ShardFrame> frames;
    for (const std::string& head : heads) {
      ShardFrame frame;
      frame.batch_id = 42;
      frame.frame_seq = frames.size();
      const std::string message = EncodeShardFrame(frame, head, 0);
      EXPECT_LE(message.size(), 65536u);
      auto read = DecodeShardFrame({AsBytes(message)});
      EXPECT_TRUE(read.ok()) << read.status();
      frames.push_back(*std::move(read));
    }
    return frames;
  }

  void ExpectEverythingSurvives(const Answer& answer) {
    const auto shards = ReadShards(FramesOf(AllHeads(answer.heads)), Joined(answer.body));
    ASSERT_TRUE(shards.ok()) << shards.status();
    const auto made = MakeShards(plan_, batch_, ranks_, *executor_, pool_);
    ASSERT_EQ(shards->size(), made->shards.size());
    for (size_t k = 0; k < shards->size(); ++k) {
      const RankShard& shard = (*shards)[k];
      EXPECT_EQ(shard.layout, LayoutFor(plan_, ranks_[k], kAnswerDigest)) << k;
      EXPECT_EQ(shard.batch.scalars, ScalarsOf(plan_, ranks_[k]));
      EXPECT_EQ(shard.load, AnyReport().loads[k]) << k;
      ASSERT_EQ(shard.batch.tensors.size(), plan_.streams.size());
      ASSERT_EQ(shard.cuts.size(), plan_.streams.size());
      for (size_t s = 0; s < plan_.streams.size(); ++s) {
        EXPECT_EQ(shard.cuts[s].extent, plan_.streams[s].extent);
        if (plan_.streams[s].extent != Extent::kWhole) {
          EXPECT_EQ(shard.cuts[s].seq_axis, OutputAxis(plan_, plan_.streams[s]));
        }
        EXPECT_EQ(shard.batch.tensors[s].spec, made->shards[k].batch.tensors[s].spec);
        EXPECT_EQ(BytesOf(shard.batch.tensors[s]), BytesOf(made->shards[k].batch.tensors[s]));
      }
    }
  }

  // Of a shard, without arrays of its layout.
  int NumEntries() const { return static_cast<int>(plan_.streams.size() + plan_.scalars.size()); }

  // All heads as the generated code reads them.
  static v1::ShardFrame Generic(const Answer& answer) {
    v1::ShardFrame message;
    std::string all;
    for (const std::string& head : AllHeads(answer.heads)) all += head;
    EXPECT_TRUE(message.ParseFromString(all));
    return message;
  }

  Batch batch_;
  ShardPlan plan_;
  std::vector<int64_t> ranks_;
};

}  // namespace cpshard
