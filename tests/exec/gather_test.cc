// The verb "gather" (contract 9.3, D9, D10): shards back to padded columns, or to the caller's.
#include "core/exec/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/exec/batches.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

Batch TokenBatch(int64_t rows, int64_t columns) {
  return {{Tokens("input_ids", rows, columns, DType::kI64, 1),
           Tokens("labels", rows, columns, DType::kI32, 500)},
          {}};
}

Sharder PadWithNine() { return Contiguous({}, {.padding_token_id = 9}); }

class GatherTest : public ShardTest {
 protected:
  absl::StatusOr<Tensor> GatherAll(const std::vector<RankShard>& shards, const std::string& name,
                                   const GatherOptions& options) {
    return GatherStream(shards, name, options, *executor_, pool_);
  }

  absl::Status Code(const std::vector<ShardLayout>& layouts, const std::vector<Tensor>& parts,
                    const GatherOptions& options = {}) {
    return Gather(layouts, parts, options, *executor_, pool_).status();
  }
};

// One layout record of a rank that holds these padded columns.
ShardLayout LayoutOf(int64_t rank, int64_t cp_size, std::vector<cpshard::Run> runs,
                     int64_t padded) {
  ShardLayout layout;
  layout.cp_rank = rank;
  layout.cp_size = cp_size;
  layout.padded_seq_len = padded;
  layout.runs = std::move(runs);
  return layout;
}

void ExpectCode(const absl::Status& status, absl::StatusCode code, const std::string& part = "") {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

TEST_F(GatherTest, ComesBackInPaddedOrderWithItsPads) {
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), TokenBatch(2, 6), 2);
  const absl::StatusOr<Tensor> full = GatherAll(shards, "labels", {});
  ASSERT_TRUE(full.ok()) << full.status();
  ExpectTensor(&*full, DType::kI32, {2, 8},
               {500, 501, 502, 503, 504, 505, -100, -100,  //
                1500, 1501, 1502, 1503, 1504, 1505, -100, -100});
  EXPECT_EQ(full->spec.name, "labels");
}

TEST_F(GatherTest, TrimmedItIsTheTensorThatWasSent) {
  for (const Sharder& sharder : {PadWithNine(), RoundRobin({}), Identity()}) {
    for (int64_t cp_size : {1, 2, 3, 4}) {
      for (int64_t columns : {0, 1, 6, 24}) {
        const Batch batch = TokenBatch(2, columns);
        const std::vector<RankShard> shards = ShardsOf(sharder, batch, cp_size);
        for (const Tensor& sent : batch.tensors) {
          const absl::StatusOr<Tensor> back = GatherAll(shards, sent.spec.name, {.trim = true});
          ASSERT_TRUE(back.ok()) << back.status();
          EXPECT_EQ(back->spec, sent.spec);
          EXPECT_EQ(BytesOf(*back), BytesOf(sent));
        }
      }
    }
  }
}

TEST_F(GatherTest, TheOrderOfTheShardsDoesNotMatter) {
  const Batch batch = TokenBatch(2, 8);
  std::vector<RankShard> shards = ShardsOf(RoundRobin({}), batch, 4);
  std::reverse(shards.begin(), shards.end());
  EXPECT_EQ(BytesOf(*GatherAll(shards, "input_ids", {})), BytesOf(batch.tensors[0]));
}

TEST_F(GatherTest, CutsOnAnotherAxisAreGatheredOnIt) {
  Batch batch = TokenBatch(2, 4);
  std::vector<double> values;
  for (int i = 0; i < 3 * 2 * 4; ++i) values.push_back(i);
  batch.tensors.push_back(TensorOf("position_ids", DType::kI16, {3, 2, 4}, values));
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), batch, 2);
  const absl::StatusOr<Tensor> full = GatherAll(shards, "position_ids", {});
  ASSERT_TRUE(full.ok()) << full.status();
  ExpectTensor(&*full, DType::kI16, {3, 2, 4}, values);

  std::vector<ShardLayout> layouts;
  std::vector<Tensor> parts;
  for (const RankShard& shard : shards) {
    layouts.push_back(shard.layout);
    parts.push_back(*shard.batch.FindTensor("position_ids"));
  }
  const absl::StatusOr<Tensor> again = Gather(layouts, parts, {.seq_axis = -1}, *executor_, pool_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(BytesOf(*again), BytesOf(*full));
}

TEST_F(GatherTest, UnevenShardsAreFine) {
  const std::vector<ShardLayout> layouts = {LayoutOf(0, 3, {{1, 3}}, 5), LayoutOf(1, 3, {}, 5),
                                            LayoutOf(2, 3, {{4, 1}, {0, 1}}, 5)};
  const std::vector<Tensor> parts = {TensorOf("x", DType::kU8, {1, 3}, {1, 2, 3}),
                                     TensorOf("x", DType::kU8, {1, 0}, {}),
                                     TensorOf("x", DType::kU8, {1, 2}, {4, 0})};
  const absl::StatusOr<Tensor> full = Gather(layouts, parts, {}, *executor_, pool_);
  ASSERT_TRUE(full.ok()) << full.status();
  ExpectTensor(&*full, DType::kU8, {1, 5}, {0, 1, 2, 3, 4});
}

TEST_F(GatherTest, AStreamThatEveryRankHoldsWholeComesBackAsItIs) {
  Batch batch = TokenBatch(1, 6);
  batch.tensors.push_back(Tokens("pixel_values", 3, 2, DType::kF32));
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), batch, 2);
  EXPECT_EQ(BytesOf(*GatherAll(shards, "pixel_values", {.trim = true})), BytesOf(batch.tensors[2]));
}

TEST_F(GatherTest, PositionsTakeEveryTokenBackAndFillWhereItWasDropped) {
  std::vector<ShardLayout> layouts = {LayoutOf(0, 2, {{0, 2}}, 4), LayoutOf(1, 2, {{2, 2}}, 4)};
  for (ShardLayout& layout : layouts) {
    layout.input_token_stream_positions = IntArray{{2, 3}, {0, -1, 3, 2, 1, -1}};
  }
  const std::vector<Tensor> parts = {TensorOf("x", DType::kI32, {2, 2}, {10, 11, 20, 21}),
                                     TensorOf("x", DType::kI32, {2, 2}, {12, 13, 22, 23})};
  const absl::StatusOr<Tensor> back =
      Gather(layouts, parts, {.trim = true, .fill = int64_t{-1}}, *executor_, pool_);
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {2, 3}, {10, -1, 13, 22, 21, -1});
  ExpectCode(Code(layouts, parts, {.trim = true}), kInvalid, "fill");
}

TEST_F(GatherTest, ARowShapeGivesTheRowsBack) {
  std::vector<ShardLayout> layouts = {LayoutOf(0, 2, {{0, 3}}, 6), LayoutOf(1, 2, {{3, 3}}, 6)};
  for (ShardLayout& layout : layouts) layout.input_row_shape = IntArray{{2}, {2, 3}};
  const std::vector<Tensor> parts = {TensorOf("x", DType::kI32, {3, 1}, {0, 1, 2}),
                                     TensorOf("x", DType::kI32, {3, 1}, {3, 4, 5})};
  const absl::StatusOr<Tensor> back =
      Gather(layouts, parts, {.seq_axis = 0, .trim = true}, *executor_, pool_);
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI32, {2, 3, 1}, {0, 1, 2, 3, 4, 5});
}

// The layout of two ranks that hold two columns each, with everything that a trim can go by.
std::vector<ShardLayout> LayoutsWithEveryTarget() {
  std::vector<ShardLayout> layouts = {LayoutOf(0, 2, {{0, 2}}, 4), LayoutOf(1, 2, {{2, 2}}, 4)};
  for (ShardLayout& layout : layouts) {
    layout.input_token_stream_positions = IntArray{{1, 3}, {3, 1, 0}};
    layout.input_row_shape = IntArray{{2}, {2, 2}};
    layout.original_seq_len = 3;
  }
  return layouts;
}

// contract 9.3: positions, then the row shape, then the original length.
TEST_F(GatherTest, ATrimTakesTheFirstTargetThatTheLayoutReports) {
  std::vector<ShardLayout> layouts = LayoutsWithEveryTarget();
  const std::vector<Tensor> parts = {TensorOf("x", DType::kI32, {1, 2}, {10, 11}),
                                     TensorOf("x", DType::kI32, {1, 2}, {12, 13})};
  const GatherOptions trim{.trim = true, .fill = int64_t{-1}};
  const auto expect = [&](std::vector<int64_t> dims, std::vector<double> values) {
    const absl::StatusOr<Tensor> back = Gather(layouts, parts, trim, *executor_, pool_);
    ASSERT_TRUE(back.ok()) << back.status();
    ExpectTensor(&*back, DType::kI32, dims, values);
  };
  expect({1, 3}, {13, 11, 10});
  for (ShardLayout& layout : layouts) layout.input_token_stream_positions.reset();
  expect({2, 2}, {10, 11, 12, 13});
  for (ShardLayout& layout : layouts) layout.input_row_shape.reset();
  expect({1, 3}, {10, 11, 12});
}

TEST_F(GatherTest, TheAxisAskedForDoesNotCountWhereThereArePositions) {
  // Two rows, two slots a rank: axis 0 would fit the layouts too.
  std::vector<ShardLayout> layouts = LayoutsWithEveryTarget();
  for (ShardLayout& layout : layouts) {
    layout.input_token_stream_positions = IntArray{{2, 2}, {3, 0, 1, 2}};
  }
  const std::vector<Tensor> parts = {TensorOf("x", DType::kI32, {2, 2}, {10, 11, 20, 21}),
                                     TensorOf("x", DType::kI32, {2, 2}, {12, 13, 22, 23})};
  for (int64_t axis : {0, 1, -1, 7}) {
    const absl::StatusOr<Tensor> back = Gather(
        layouts, parts, {.seq_axis = axis, .trim = true, .fill = int64_t{-1}}, *executor_, pool_);
    ASSERT_TRUE(back.ok()) << back.status();
    ExpectTensor(&*back, DType::kI32, {2, 2}, {13, 10, 21, 22});
  }
}

class GatherRefusals : public GatherTest {
 protected:
  std::vector<ShardLayout> layouts_ = {LayoutOf(0, 2, {{0, 2}}, 4), LayoutOf(1, 2, {{2, 2}}, 4)};
  std::vector<Tensor> parts_ = {TensorOf("x", DType::kI32, {1, 2}, {0, 1}),
                                TensorOf("x", DType::kI32, {1, 2}, {2, 3})};
};

TEST_F(GatherRefusals, TheUnchangedCaseIsGathered) { EXPECT_TRUE(Code(layouts_, parts_).ok()); }

TEST_F(GatherRefusals, ARankIsMissing) {
  ExpectCode(Code({layouts_[0]}, {parts_[0]}), kPrecondition, "1");
  ExpectCode(Code({layouts_[0], layouts_[0]}, parts_), kPrecondition, "0");
  ExpectCode(Code({}, {}), kPrecondition);
}

TEST_F(GatherRefusals, LayoutsOfTwoBatches) {
  layouts_[1].batch_digest = 5;
  ExpectCode(Code(layouts_, parts_), kPrecondition);
}

TEST_F(GatherRefusals, LayoutsOfTwoGroups) {
  layouts_[1].cp_size = 3;
  ExpectCode(Code(layouts_, parts_), kPrecondition);
}

TEST_F(GatherRefusals, LayoutsOfTwoLengths) {
  layouts_[1].padded_seq_len = 6;
  ExpectCode(Code(layouts_, parts_), kPrecondition);
}

TEST_F(GatherRefusals, LayoutsOfTwoOriginalLengths) {
  layouts_[1].original_seq_len = 3;
  ExpectCode(Code(layouts_, parts_), kPrecondition);
}

TEST_F(GatherRefusals, AnOriginalLengthBeyondThePaddedColumns) {
  for (int64_t length : {5, -1}) {
    for (ShardLayout& layout : layouts_) layout.original_seq_len = length;
    ExpectCode(Code(layouts_, parts_, {.trim = true}), kPrecondition, std::to_string(length));
  }
}

TEST_F(GatherRefusals, LayoutsThatDoNotCoverTheColumns) {
  layouts_[1].runs = {{1, 2}};
  ExpectCode(Code(layouts_, parts_), kPrecondition);
}

TEST_F(GatherRefusals, LayoutsThatDoNotBelongToTheTensors) {
  parts_ = {TensorOf("x", DType::kI32, {1, 3}, {0, 1, 2}),
            TensorOf("x", DType::kI32, {1, 3}, {3, 4, 5})};
  ExpectCode(Code(layouts_, parts_), kPrecondition, "3");
}

TEST_F(GatherRefusals, WholeLayoutsThatDoNotBelongToTheTensors) {
  layouts_ = {LayoutOf(0, 2, {{0, 4}}, 4), LayoutOf(1, 2, {{0, 4}}, 4)};
  parts_ = {TensorOf("x", DType::kI32, {1, 3}, {0, 1, 2}),
            TensorOf("x", DType::kI32, {1, 3}, {0, 1, 2})};
  ExpectCode(Code(layouts_, parts_), kPrecondition, "3");
}

TEST_F(GatherRefusals, WholeStreamsThatAreNotTheSameOnEveryRank) {
  layouts_ = {LayoutOf(0, 2, {{0, 2}}, 2), LayoutOf(1, 2, {{0, 2}}, 2)};
  ExpectCode(Code(layouts_, parts_), kPrecondition, "whole");
  EXPECT_TRUE(Code(layouts_, {parts_[0], parts_[0]}).ok());
}

TEST_F(GatherRefusals, RanksWithoutALayout) {
  layouts_ = {LayoutOf(0, 2, {}, 0), LayoutOf(1, 2, {}, 0)};
  for (ShardLayout& layout : layouts_) layout.padded_seq_len.reset();
  parts_[1] = parts_[0];
  ExpectCode(Code(layouts_, parts_), kPrecondition);
}

TEST_F(GatherRefusals, ThereIsNothingToTrimTo) {
  ExpectCode(Code(layouts_, parts_, {.trim = true}), kPrecondition, "trim");
}

TEST_F(GatherRefusals, TensorsThatDisagree) {
  const Tensor good = parts_[1];
  parts_[1] = TensorOf("x", DType::kI64, {1, 2}, {2, 3});
  ExpectCode(Code(layouts_, parts_), kInvalid, "i64");
  parts_[1] = TensorOf("x", DType::kI32, {2, 2}, {2, 3, 4, 5});
  ExpectCode(Code(layouts_, parts_), kInvalid, "[2, 2]");
  parts_[1] = TensorOf("x", DType::kI32, {1, 2, 1}, {2, 3});
  ExpectCode(Code(layouts_, parts_), kInvalid, "[1, 2, 1]");
  ExpectCode(Code(layouts_, {good}), kInvalid);
}

TEST_F(GatherRefusals, AnAxisThatIsNotThere) {
  for (int64_t axis : {2, -3}) {
    ExpectCode(Code(layouts_, parts_, {.seq_axis = axis}), kInvalid, std::to_string(axis));
  }
}

TEST_F(GatherRefusals, AStreamThatIsNotThere) {
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), TokenBatch(1, 4), 2);
  ExpectCode(GatherAll(shards, "weights", {}).status(), absl::StatusCode::kNotFound, "weights");
}

}  // namespace
}  // namespace cpshard
