// The verb "gather" on packed streams: one flat stream back to rows, stacked chunks back to chunks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/exec/gather.h"
#include "tests/exec/batches.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

void ExpectCode(const absl::Status& status, absl::StatusCode code, const std::string& part = "") {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

// Rows of eight tokens: documents of 4 and 4, then one of 8.
Batch PackedBatch() {
  std::vector<double> embeds(2 * 8 * 3);
  for (size_t i = 0; i < embeds.size(); ++i) embeds[i] = static_cast<double>(i);
  return {{Tokens("input_ids", 2, 8, DType::kI64, 1),
           TensorOf("labels", DType::kI64, {2, 8, 3}, embeds),
           Tokens("position_ids", 2, 8, DType::kI64, 0),
           TensorOf("seq_lens", DType::kI64, {2, 2}, {4, 4, 8, -1000})},
          {}};
}

class GatherPacked : public ShardTest {
 protected:
  absl::StatusOr<Tensor> GatherAll(const std::vector<RankShard>& shards, const std::string& name,
                                   const GatherOptions& options) {
    return GatherStream(shards, name, options, *executor_, pool_);
  }
};

TEST_F(GatherPacked, ComesBackAsTheFlatStream) {
  const Batch batch = PackedBatch();
  for (int64_t cp_size : {1, 2}) {
    const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, cp_size);
    const absl::StatusOr<Tensor> ids = GatherAll(shards, "input_ids", {});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(ids->spec.dims, std::vector<int64_t>({16}));
    EXPECT_EQ(BytesOf(*ids), BytesOf(batch.tensors[0]));
    const absl::StatusOr<Tensor> labels = GatherAll(shards, "labels", {});
    ASSERT_TRUE(labels.ok()) << labels.status();
    EXPECT_EQ(labels->spec.dims, std::vector<int64_t>({16, 3}));
    EXPECT_EQ(BytesOf(*labels), BytesOf(batch.tensors[1]));
  }
}

TEST_F(GatherPacked, TrimmedItHasTheRowsThatWereSent) {
  const Batch batch = PackedBatch();
  for (int64_t cp_size : {1, 2}) {
    const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, cp_size);
    for (size_t i : {0, 1, 2}) {
      const Tensor& sent = batch.tensors[i];
      const absl::StatusOr<Tensor> back = GatherAll(shards, sent.spec.name, {.trim = true});
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(back->spec, sent.spec);
      EXPECT_EQ(BytesOf(*back), BytesOf(sent));
    }
  }
}

TEST_F(GatherPacked, TheIndicesOfAllRanksAreAllIndices) {
  std::vector<double> all;
  for (int i = 0; i < 16; ++i) all.push_back(i);
  const std::vector<RankShard> shards = ShardsOf(Thd({}), PackedBatch(), 2);
  const absl::StatusOr<Tensor> back = GatherAll(shards, "_thd_local_indices", {});
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {16}, all);
}

TEST_F(GatherPacked, PositionsOfSeveralAxesComeBackOnTheirOwnAxis) {
  Batch batch = PackedBatch();
  std::vector<double> values(3 * 16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(100 + i);
  batch.tensors[2] = TensorOf("position_ids", DType::kI32, {3, 2, 8}, values);
  const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 1);
  const absl::StatusOr<Tensor> back = GatherAll(shards, "position_ids", {});
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {3, 1, 16}, values);
  // contract 9.3: a row shape is for streams without axes before it.
  ExpectCode(GatherAll(shards, "position_ids", {.trim = true}).status(), kPrecondition, "[2, 8]");
}

TEST_F(GatherPacked, ALiteralComesBackAsItIs) {
  for (int64_t num_chunks : {1, 2}) {
    const std::vector<RankShard> shards =
        ShardsOf(Thd({.num_chunks = num_chunks}), PackedBatch(), 2);
    for (bool trim : {false, true}) {
      const absl::StatusOr<Tensor> back = GatherAll(shards, "cu_seqlens", {.trim = trim});
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(back->spec, shards[0].batch.FindTensor("cu_seqlens")->spec);
      EXPECT_EQ(BytesOf(*back), BytesOf(*shards[0].batch.FindTensor("cu_seqlens")));
    }
  }
}

TEST_F(GatherPacked, StackedChunksComeBackChunkByChunk) {
  const Batch batch = PackedBatch();
  for (int64_t cp_size : {1, 2}) {
    std::vector<RankShard> shards = ShardsOf(Thd({.num_chunks = 2}), batch, cp_size);
    std::reverse(shards.begin(), shards.end());
    const absl::StatusOr<Tensor> ids = GatherAll(shards, "input_ids", {});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(ids->spec.dims, std::vector<int64_t>({2, 8}));
    EXPECT_EQ(BytesOf(*ids), BytesOf(batch.tensors[0]));
    const absl::StatusOr<Tensor> labels = GatherAll(shards, "labels", {});
    ASSERT_TRUE(labels.ok()) << labels.status();
    EXPECT_EQ(labels->spec.dims, std::vector<int64_t>({2, 8, 3}));
    EXPECT_EQ(BytesOf(*labels), BytesOf(batch.tensors[1]));
    ExpectCode(GatherAll(shards, "input_ids", {.trim = true}).status(), kPrecondition, "trim");
  }
}

ShardLayout LayoutOf(int64_t rank, int64_t cp_size, std::vector<cpshard::Run> runs) {
  ShardLayout layout;
  layout.cp_rank = rank;
  layout.cp_size = cp_size;
  layout.runs = std::move(runs);
  return layout;
}

// Two chunks of four columns; rank 0 holds the head and tail of the first, the middle of the
// second.
class GatherStacked : public GatherPacked {
 protected:
  absl::StatusOr<Tensor> Back(const GatherOptions& options = {}) {
    return Gather(layouts_, parts_, options, *executor_, pool_);
  }

  void SetParts(std::vector<int64_t> dims) {
    for (Tensor& part : parts_) part.spec.dims = dims;
  }

  std::vector<ShardLayout> layouts_ = {LayoutOf(0, 2, {{0, 1}, {3, 1}, {5, 2}}),
                                       LayoutOf(1, 2, {{1, 2}, {4, 1}, {7, 1}})};
  std::vector<Tensor> parts_ = {TensorOf("x", DType::kI32, {2, 2}, {0, 3, 5, 6}),
                                TensorOf("x", DType::kI32, {2, 2}, {1, 2, 4, 7})};
};

TEST_F(GatherStacked, IsInTheOrderOfTheColumnsOfEveryChunk) {
  const absl::StatusOr<Tensor> back = Back();
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_TRUE(Back({.seq_axis = -1}).ok());
}

TEST_F(GatherStacked, FlatPartsOfTheSameLayoutsStayFlat) {
  SetParts({4});
  const absl::StatusOr<Tensor> back = Back({.seq_axis = 0});
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {8}, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_F(GatherStacked, OneChunkIsOneRow) {
  SetParts({1, 4});
  const absl::StatusOr<Tensor> back = Back();
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {1, 8}, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_F(GatherStacked, RanksMayHoldUnequalPartsOrNone) {
  layouts_ = {LayoutOf(0, 3, {{0, 2}, {4, 2}}), LayoutOf(1, 3, {{2, 1}, {3, 1}, {6, 2}}),
              LayoutOf(2, 3, {})};
  parts_ = {TensorOf("x", DType::kI32, {2, 2, 1}, {0, 1, 4, 5}),
            TensorOf("x", DType::kI32, {2, 2, 1}, {2, 3, 6, 7}),
            TensorOf("x", DType::kI32, {2, 0, 1}, {})};
  const absl::StatusOr<Tensor> back = Back({.seq_axis = -2});
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {2, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_F(GatherStacked, RowsUnderAReportedLayoutAreNotTakenForChunks) {
  for (ShardLayout& layout : layouts_) layout.padded_seq_len = 8;
  ExpectCode(Back().status(), kPrecondition, "slots");
}

TEST_F(GatherStacked, ChunksThatDoNotFitTheSlotsAreRefused) {
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{2, 3}, {3, 2}, {0, 2}, {4, 0}, {8, 1}, {2}}) {
    for (Tensor& part : parts_) {
      part = TensorOf("x", DType::kI32, dims, std::vector<double>(Product(dims)));
    }
    ExpectCode(Back({.seq_axis = -1}).status(), kPrecondition, "slots");
  }
}

TEST_F(GatherStacked, ChunksBeyond64BitsAreRefused) {
  const int64_t wraps = 3074457345618258603;  // times 12 = 4 modulo 2^64
  const int64_t huge = int64_t{1} << 62;
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{wraps, 12, 0}, {huge, 5, 0}, {huge, huge, 0}}) {
    for (Tensor& part : parts_) part = {{"x", DType::kI32, dims}, {}};
    ExpectCode(Back().status(), kPrecondition, "slots");
  }
}

TEST_F(GatherStacked, PartsOfUnequalNumbersOfChunksAreRefused) {
  parts_[1] = TensorOf("x", DType::kI32, {4, 1}, {1, 2, 4, 7});
  ExpectCode(Back().status(), kInvalid, "[4, 1]");
}

TEST_F(GatherStacked, LayoutsThatDoNotCoverTheColumnsAreRefused) {
  layouts_[1].runs = {{1, 2}, {4, 1}, {8, 1}};
  ExpectCode(Back().status(), kInvalid, "8 columns");
  layouts_[1].runs = {{1, 2}, {4, 1}, {6, 1}};
  ExpectCode(Back().status(), kPrecondition, "twice");
  layouts_[1].runs = {{1, 2}, {4, 1}, {kFill, 1}};
  ExpectCode(Back().status(), kPrecondition, "missing");
}

}  // namespace
}  // namespace cpshard
