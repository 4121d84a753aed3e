// Every kind of stream that a plan can name, lowered and cut: views, derived and generated streams,
// padded extents, rows with their own placement, uneven ranks. Plans by hand where no layout makes
// such a plan yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/exec/batches.h"

namespace cpshard {
namespace {

using ::testing::SizeIs;

IndexMap MapOf(const std::vector<int64_t>& columns) {
  IndexMap map;
  for (int64_t column : columns) map.Append({column, 1});
  return map;
}

// Two rows of three columns on four padded ones; rank 0 holds three of them, rank 1 one.
ShardPlan HandMade(std::vector<StreamPlan> streams) {
  LayoutPlan layout;
  layout.rows = 2;
  layout.source_len = 3;
  layout.padded_len = 4;
  layout.placement = {MapOf({0, -1, 1, 2}), MapOf({2, 1, -1, -1})};
  layout.partition = {MapOf({0, 1, 3}), MapOf({2})};
  ShardPlan plan;
  plan.cp_size = 2;
  plan.chunks = {layout};
  plan.streams = std::move(streams);
  return plan;
}

StreamPlan View(std::string name, std::vector<int64_t> dims, Fill fill) {
  StreamPlan stream{name, DType::kI32, std::move(dims)};
  stream.value.from = ViewOf{std::move(name)};
  stream.fill = fill;
  return stream;
}

constexpr Fill kSeven{Fill::Kind::kConstant, {7}};
constexpr Fill kContinue{Fill::Kind::kContinue, {7}};

class ShardStreams : public ShardTest {
 protected:
  std::vector<RankShard> Make(const ShardPlan& plan, const Batch& batch) {
    const std::vector<int64_t> ranks = {0, 1};
    absl::StatusOr<ShardResult> result = MakeShards(plan, batch, ranks, *executor_, pool_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? std::move(result->shards) : std::vector<RankShard>(2);
  }

  const Tensor* Of(const RankShard& shard, const std::string& name) {
    return shard.batch.FindTensor(name);
  }
};

TEST_F(ShardStreams, EveryRowHasItsOwnPlacementAndEveryRankItsOwnLength) {
  const Batch batch{{Tokens("x", 2, 3, DType::kI32, 10)}, {}};
  const std::vector<RankShard> shards = Make(HandMade({View("x", {2, 3}, kSeven)}), batch);
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {2, 3}, {10, 7, 12, 1012, 1011, 7});
  ExpectTensor(Of(shards[1], "x"), DType::kI32, {2, 1}, {11, 7});
}

TEST_F(ShardStreams, AContinuedFillCountsFromTheColumnBeforeIt) {
  const Batch batch{{Tokens("x", 2, 3, DType::kI32, 10)}, {}};
  const std::vector<RankShard> shards = Make(HandMade({View("x", {2, 3}, kContinue)}), batch);
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {2, 3}, {10, 11, 12, 1012, 1011, 1013});
  ExpectTensor(Of(shards[1], "x"), DType::kI32, {2, 1}, {11, 1012});
}

TEST_F(ShardStreams, TheBatchAxisNeedNotBeTheFirst) {
  // [3 rope axes, 2 rows, 3 columns, 1]: the row is the second index.
  std::vector<double> values;
  for (int i = 0; i < 18; ++i) values.push_back(100 * (i / 6) + 10 * (i / 3 % 2) + i % 3);
  StreamPlan stream = View("x", {3, 2, 3, 1}, kSeven);
  stream.axis = 2;
  stream.batch_axis = 1;
  const std::vector<RankShard> shards =
      Make(HandMade({stream}), {{TensorOf("x", DType::kI32, {3, 2, 3, 1}, values)}, {}});
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {3, 2, 3, 1},
               {0, 7, 2, 12, 11, 7, 100, 7, 102, 112, 111, 7, 200, 7, 202, 212, 211, 7});
}

TEST_F(ShardStreams, TheRowOfAnInnerIndexIsThatOfItsBatchAxis) {
  // [2 rows, 2 heads, 3 columns]: both heads of a row take the row's placement.
  std::vector<double> values;
  for (int i = 0; i < 12; ++i) values.push_back(100 * (i / 6) + 10 * (i / 3 % 2) + i % 3);
  StreamPlan stream = View("x", {2, 2, 3}, kSeven);
  stream.axis = 2;
  const std::vector<RankShard> shards =
      Make(HandMade({stream}), {{TensorOf("x", DType::kI32, {2, 2, 3}, values)}, {}});
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {2, 2, 3},
               {0, 7, 2, 10, 7, 12, 102, 101, 7, 112, 111, 7});
}

TEST_F(ShardStreams, WithoutABatchAxisAllTakeThePlacementOfRowZero) {
  StreamPlan stream = View("x", {3, 2}, kSeven);
  stream.axis = 0;
  stream.batch_axis = -1;
  const std::vector<RankShard> shards =
      Make(HandMade({stream}), {{TensorOf("x", DType::kI32, {3, 2}, {0, 1, 10, 11, 20, 21})}, {}});
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {3, 2}, {0, 1, 7, 7, 20, 21});
  ExpectTensor(Of(shards[1], "x"), DType::kI32, {1, 2}, {10, 11});
}

TEST_F(ShardStreams, APaddedStreamIsOneBufferForAllRanks) {
  StreamPlan stream = View("x", {2, 3}, kSeven);
  stream.extent = Extent::kPadded;
  const std::vector<RankShard> shards =
      Make(HandMade({stream}), {{Tokens("x", 2, 3, DType::kI32, 10)}, {}});
  for (const RankShard& shard : shards) {
    ExpectTensor(Of(shard, "x"), DType::kI32, {2, 4}, {10, 7, 11, 12, 1012, 1011, 7, 7});
  }
  EXPECT_EQ(Of(shards[0], "x")->buffer.data(), Of(shards[1], "x")->buffer.data());
  EXPECT_EQ(pool_.stats().buffers_out, 1u);
}

TEST_F(ShardStreams, GeneratedRowsFollowTheirSegments) {
  StreamPlan stream{"ids", DType::kI32, {2, 3}};
  stream.value.from = Generated{{{{1, 0, 2}, {5, 1, 1}}, {{-1, 1, 3}}}, false};
  stream.fill = kSeven;
  StreamPlan padded{"padded", DType::kI64, {2, 3}};
  padded.value.from = Generated{{{{0, 1, 4}}}, true};
  const std::vector<RankShard> shards = Make(HandMade({stream, padded}), {});
  ExpectTensor(Of(shards[0], "ids"), DType::kI32, {2, 3}, {1, 7, 5, 1, 0, 7});
  ExpectTensor(Of(shards[1], "ids"), DType::kI32, {2, 1}, {1, 7});
  ExpectTensor(Of(shards[0], "padded"), DType::kI64, {2, 3}, {0, 1, 3, 0, 1, 3});
  ExpectTensor(Of(shards[1], "padded"), DType::kI64, {2, 1}, {2, 2});
}

TEST_F(ShardStreams, OneRowMayStandForAllOfThemDerivedOrNot) {
  StreamPlan plain = View("x", {2, 3}, kSeven);
  std::get<ViewOf>(plain.value.from).how = ViewOf::How::kBroadcastRow;
  StreamPlan derived = plain;
  derived.name = "zero";
  derived.dtype = DType::kBool;
  derived.value.op = Op::kIsZero;
  derived.fill.value.bits = 1;
  const std::vector<RankShard> shards =
      Make(HandMade({plain, derived}), {{TensorOf("x", DType::kI32, {1, 3}, {0, 4, 5})}, {}});
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {2, 3}, {0, 7, 5, 5, 4, 7});
  ExpectTensor(Of(shards[0], "zero"), DType::kBool, {2, 3}, {1, 1, 0, 0, 0, 1});
}

TEST_F(ShardStreams, AStreamIsCastTestedAndCastAgain) {
  StreamPlan stream = View("x", {2, 3}, kSeven);
  stream.value.cast = DType::kI64;
  stream.value.op = Op::kEquals;
  stream.value.operand = 2;
  const std::vector<RankShard> shards = Make(
      HandMade({stream}), {{TensorOf("x", DType::kF32, {2, 3}, {2.5, 2, 1.5, 0, 2.25, 3})}, {}});
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {2, 3}, {1, 7, 0, 0, 1, 7});
}

TEST_F(ShardStreams, AFourDimensionalMaskIsReadOnTheDiagonalOfHeadZero) {
  // additive: 0 = attend; one row, two heads, three queries, four keys.
  std::vector<double> mask(24, -1.0);
  mask[0] = mask[10] = 0;  // (0, 0) and (2, 2) of head 0
  const Batch batch{{Tokens("input_ids", 1, 3), Tokens("labels", 1, 3),
                     TensorOf("attention_mask", DType::kBF16, {1, 2, 3, 4}, mask)},
                    {}};
  const std::vector<RankShard> shards = ShardsOf(Contiguous({}, {.padding_token_id = 0}), batch, 2);
  ExpectTensor(Of(shards[0], "padding_mask"), DType::kBool, {1, 2}, {0, 1});
  ExpectTensor(Of(shards[1], "padding_mask"), DType::kBool, {1, 2}, {0, 1});
}

// contract 2.3: every leading index goes on from its own last value.
TEST_F(ShardStreams, EveryRopeAxisContinuesFromItsOwnLastValue) {
  const Batch batch{{Tokens("input_ids", 1, 3), Tokens("labels", 1, 3),
                     TensorOf("position_ids", DType::kI32, {3, 1, 3}, {0, 1, 2, 0, 0, 0, 2, 3, 4})},
                    {}};
  const std::vector<RankShard> shards = ShardsOf(Contiguous({}, {.padding_token_id = 0}), batch, 1);
  ExpectTensor(Of(shards[0], "position_ids"), DType::kI32, {3, 1, 4},
               {0, 1, 2, 3, 0, 0, 0, 1, 2, 3, 4, 5});
}

TEST_F(ShardStreams, WriteShardsFillsTheDestinationsItIsGiven) {
  const ShardPlan plan = HandMade({View("x", {2, 3}, kSeven)});
  const Batch batch{{Tokens("x", 2, 3, DType::kI32, 10)}, {}};
  std::vector<int32_t> first(7, -5), second(3, -5);
  const std::vector<int64_t> ranks = {1, 0};
  std::byte* const dests[] = {reinterpret_cast<std::byte*>(second.data()),
                              reinterpret_cast<std::byte*>(first.data())};
  ASSERT_TRUE(WriteShards(plan, batch, ranks, dests, *executor_, pool_).ok());
  EXPECT_THAT(first, testing::ElementsAre(10, 7, 12, 1012, 1011, 7, -5));
  EXPECT_THAT(second, testing::ElementsAre(11, 7, -5));
}

TEST_F(ShardStreams, WriteShardsLeavesOutAStreamThatNobodyWants) {
  StreamPlan derived = View("x", {2, 3}, kSeven);
  derived.value.op = Op::kIsZero;
  const Batch batch{{Tokens("x", 2, 3, DType::kI32)}, {}};
  const std::vector<int64_t> ranks = {0, 1};
  std::byte* const dests[] = {nullptr, nullptr};
  EXPECT_TRUE(WriteShards(HandMade({derived}), batch, ranks, dests, *executor_, pool_).ok());
  EXPECT_EQ(pool_.stats().bytes_idle, 0u);
}

// "nullptr = not wanted", one rank at a time. In a process of its own: what is wrong here may
// crash.
class WholeStreamWrittenOnce : public ShardStreams, public testing::WithParamInterface<Extent> {};

TEST_P(WholeStreamWrittenOnce, ReachesTheRankThatWantsIt) {
  StreamPlan stream = View("x", {2, 3}, kSeven);
  stream.extent = GetParam();
  if (stream.extent == Extent::kWhole) stream.fill = {};
  const ShardPlan plan = HandMade({stream});
  const Batch batch{{Tokens("x", 2, 3, DType::kI32, 10)}, {}};
  for (size_t wanted : {0, 1}) {
    std::vector<int32_t> dest(8, -5);
    std::byte* dests[2] = {};
    dests[wanted] = reinterpret_cast<std::byte*>(dest.data());
    const std::vector<int64_t> ranks = {0, 1};
    const auto write = [&] {
      const bool ok = WriteShards(plan, batch, ranks, dests, *executor_, pool_).ok();
      std::_Exit(ok && dest[0] != -5 ? 0 : 1);
    };
    EXPECT_EXIT(write(), testing::ExitedWithCode(0), "") << "rank " << wanted << " wants it";
  }
}

INSTANTIATE_TEST_SUITE_P(Extents, WholeStreamWrittenOnce,
                         testing::Values(Extent::kPadded, Extent::kWhole), [](const auto& info) {
                           return info.param == Extent::kPadded ? "Padded" : "AsSent";
                         });

}  // namespace
}  // namespace cpshard
