// What packed layouts add to a plan: literals, views that reshape, casts before the cut, chunks
// that are stacked, values per rank. Whatever is written down here, WriteShards, MakeShards and
// ViewShards must all give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/exec/bodies.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class PackedStreams : public ShardBodyTest {
 protected:
  // The shards of all ranks as MakeShards gives them; WriteShards and ViewShards give the same.
  std::vector<RankShard> Shards(const ShardPlan& plan, const Batch& batch) {
    const std::vector<int64_t> ranks = AllRanks(plan);
    absl::StatusOr<ShardResult> made = MakeShards(plan, batch, ranks, *executor_, pool_);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return std::vector<RankShard>(ranks.size());
    ExpectSameWritten(plan, batch, made->shards);
    ExpectRightBodies(plan, batch, ranks);
    return std::move(made->shards);
  }

  std::vector<RankShard> Shards(const Sharder& sharder, const Batch& batch, int64_t cp_size) {
    return Shards(PlanOf(sharder, batch, cp_size), batch);
  }

 private:
  void ExpectSameWritten(const ShardPlan& plan, const Batch& batch,
                         const std::vector<RankShard>& shards) {
    std::vector<std::vector<std::byte>> written;
    std::vector<std::byte*> dests;
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      for (const RankShard& shard : shards) {
        written.emplace_back(shard.batch.tensors[s].buffer.size() + 1, std::byte{0x5a});
        dests.push_back(written.back().data());
      }
    }
    const std::vector<int64_t> ranks = AllRanks(plan);
    ASSERT_TRUE(WriteShards(plan, batch, ranks, dests, *executor_, pool_).ok());
    for (size_t i = 0; i < written.size(); ++i) {
      EXPECT_EQ(written[i].back(), std::byte{0x5a});
      written[i].pop_back();
      const Tensor& made = shards[i % shards.size()].batch.tensors[i / shards.size()];
      EXPECT_EQ(written[i], BytesOf(made)) << made.spec.name;
    }
  }
};

// One layout: source columns [begin, begin + columns), and the parts of the ranks.
LayoutPlan Window(int64_t begin, int64_t columns, int64_t source_len,
                  const std::vector<std::vector<Run>>& parts) {
  LayoutPlan layout;
  layout.rows = 1;
  layout.source_len = source_len;
  layout.padded_len = columns;
  layout.placement.emplace_back().Append({begin, columns});
  for (const std::vector<Run>& part : parts) {
    IndexMap& local = layout.partition.emplace_back();
    for (const Run& run : part) local.Append(run);
  }
  return layout;
}

ShardPlan PlanWith(std::vector<LayoutPlan> chunks, std::vector<StreamPlan> streams) {
  ShardPlan plan;
  plan.cp_size = static_cast<int64_t>(chunks.front().partition.size());
  plan.chunks = std::move(chunks);
  plan.streams = std::move(streams);
  return plan;
}

// Head and tail of four columns for two ranks.
ShardPlan OneDocument(std::vector<StreamPlan> streams) {
  return PlanWith({Window(0, 4, 4, {{{0, 1}, {3, 1}}, {{1, 2}}})}, std::move(streams));
}

// Eight columns in two chunks: head and tail of four for rank 0, then the middle of them.
ShardPlan TwoChunks(std::vector<StreamPlan> streams) {
  return PlanWith({Window(0, 4, 8, {{{0, 1}, {3, 1}}, {{1, 2}}}),
                   Window(4, 4, 8, {{{1, 2}}, {{0, 1}, {3, 1}}})},
                  std::move(streams));
}

StreamPlan FlatView(std::string name, DType dtype, std::vector<int64_t> dims, int axis = 0) {
  StreamPlan stream{name, dtype, std::move(dims), axis};
  stream.batch_axis = -1;
  stream.value.from = ViewOf{std::move(name)};
  return stream;
}

StreamPlan Whole(std::string name, DType dtype, std::vector<int64_t> dims,
                 std::vector<int64_t> values) {
  StreamPlan stream{std::move(name), dtype, std::move(dims), 0};
  stream.batch_axis = -1;
  stream.extent = Extent::kWhole;
  stream.value.from = Literal{std::move(values)};
  return stream;
}

const Tensor* Of(const RankShard& shard, const std::string& name) {
  return shard.batch.FindTensor(name);
}

TEST_F(PackedStreams, ALiteralIsTheSameTensorForEveryRank) {
  const ShardPlan plan = OneDocument(
      {Whole("bounds", DType::kI32, {4}, {0, 4, -1000, 2'000'000'000}),
       Whole("longest", DType::kI32, {}, {4}), Whole("wide", DType::kI64, {2, 1}, {-1, 1LL << 40}),
       Whole("narrow", DType::kU8, {3}, {0, 200, 255}), Whole("none", DType::kI32, {0}, {})});
  const std::vector<RankShard> shards = Shards(plan, {});
  for (const RankShard& shard : shards) {
    ExpectTensor(Of(shard, "bounds"), DType::kI32, {4}, {0, 4, -1000, 2e9});
    ExpectTensor(Of(shard, "longest"), DType::kI32, {}, {4});
    ExpectTensor(Of(shard, "wide"), DType::kI64, {2, 1}, {-1, 1099511627776.0});
    ExpectTensor(Of(shard, "narrow"), DType::kU8, {3}, {0, 200, 255});
    ExpectTensor(Of(shard, "none"), DType::kI32, {0}, {});
    EXPECT_EQ(shard.cuts[0].extent, Extent::kWhole);
  }
  EXPECT_EQ(Of(shards[0], "bounds")->buffer.data(), Of(shards[1], "bounds")->buffer.data());
}

TEST_F(PackedStreams, ALiteralReachesTheOneRankThatWantsIt) {
  const ShardPlan plan = OneDocument({Whole("bounds", DType::kI32, {2}, {3, 5})});
  for (size_t wanted : {0, 1}) {
    std::vector<int32_t> dest(3, -7);
    std::byte* dests[2] = {};
    dests[wanted] = reinterpret_cast<std::byte*>(dest.data());
    ASSERT_TRUE(WriteShards(plan, {}, AllRanks(plan), dests, *executor_, pool_).ok());
    EXPECT_THAT(dest, ElementsAre(3, 5, -7));
  }
}

TEST_F(PackedStreams, ALiteralIsNoViewOfTheBatch) {
  const ShardPlan plan = OneDocument({Whole("bounds", DType::kI32, {2}, {3, 5})});
  EXPECT_EQ(BodyOf(plan, {}, 1).copied_bytes, 8);
}

TEST_F(PackedStreams, ShortLiteralsAreSentInOnePieceLongOnesFromWhereTheyLie) {
  const StreamPlan bounds = Whole("bounds", DType::kI32, {2}, {3, 5}),
                   longest = Whole("longest", DType::kI32, {}, {2}),
                   many = Whole("many", DType::kI64, {512}, std::vector<int64_t>(512, 6));
  EXPECT_THAT(BodyOf(OneDocument({bounds, longest}), {}, 4096).pieces, SizeIs(1));
  EXPECT_THAT(BodyOf(OneDocument({bounds, many, longest}), {}, 4096).pieces, SizeIs(3));
}

TEST_F(PackedStreams, RowsAreFlattenedIntoOneStreamOfTokens) {
  // [2, 2, 2, 2] as [4, 4]: token t has the values 10 t ... 10 t + 3.
  std::vector<double> values;
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 4; ++i) values.push_back(10 * t + i);
  }
  const std::vector<RankShard> shards =
      Shards(OneDocument({FlatView("x", DType::kI16, {4, 4})}),
             {{TensorOf("x", DType::kI16, {2, 2, 2, 2}, values)}, {}});
  ExpectTensor(Of(shards[0], "x"), DType::kI16, {2, 4}, {0, 1, 2, 3, 30, 31, 32, 33});
  ExpectTensor(Of(shards[1], "x"), DType::kI16, {2, 4}, {10, 11, 12, 13, 20, 21, 22, 23});
}

TEST_F(PackedStreams, RowsOfSeveralAxesAreFlattenedEachForItself) {
  // [3, 2, 2] as [3, 1, 4].
  const Batch batch{
      {TensorOf("x", DType::kI32, {3, 2, 2}, {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23})}, {}};
  const std::vector<RankShard> shards =
      Shards(OneDocument({FlatView("x", DType::kI32, {3, 1, 4}, 2)}), batch);
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {3, 1, 2}, {0, 3, 10, 13, 20, 23});
  ExpectTensor(Of(shards[1], "x"), DType::kI32, {3, 1, 2}, {1, 2, 11, 12, 21, 22});
  EXPECT_EQ(shards[0].cuts[0].seq_axis, 2);
}

TEST_F(PackedStreams, AReshapedStreamIsCastBeforeItIsCut) {
  const ShardPlan plan =
      OneDocument({FlatView("x", DType::kI64, {4}), FlatView("y", DType::kI64, {4, 2}),
                   FlatView("mask", DType::kI64, {4})});
  const Batch batch{{TensorOf("x", DType::kI32, {2, 2}, {-5, 6, 7, 2e9}),
                     TensorOf("y", DType::kI16, {1, 4, 2}, {0, 1, 10, 11, 20, 21, -30, 31}),
                     TensorOf("mask", DType::kBool, {4, 1}, {1, 0, 0, 1})},
                    {}};
  const std::vector<RankShard> shards = Shards(plan, batch);
  ExpectTensor(Of(shards[0], "x"), DType::kI64, {2}, {-5, 2e9});
  ExpectTensor(Of(shards[1], "x"), DType::kI64, {2}, {6, 7});
  ExpectTensor(Of(shards[0], "y"), DType::kI64, {2, 2}, {0, 1, -30, 31});
  ExpectTensor(Of(shards[0], "mask"), DType::kI64, {2}, {1, 1});
  ExpectTensor(Of(shards[1], "mask"), DType::kI64, {2}, {0, 0});
}

TEST_F(PackedStreams, ChunksAreStackedEachWithItsOwnCut) {
  const ShardPlan plan =
      TwoChunks({FlatView("x", DType::kI32, {8}), FlatView("wide", DType::kI64, {8}),
                 FlatView("pairs", DType::kI16, {8, 2})});
  std::vector<double> pairs;
  for (int t = 0; t < 8; ++t) pairs.insert(pairs.end(), {10.0 * t, 10.0 * t + 1});
  const Batch batch{{TensorOf("x", DType::kI32, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}),
                     TensorOf("wide", DType::kI32, {2, 4}, {0, -1, -2, -3, -4, -5, -6, -7}),
                     TensorOf("pairs", DType::kI16, {2, 4, 2}, pairs)},
                    {}};
  const std::vector<RankShard> shards = Shards(plan, batch);
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {2, 2}, {0, 3, 5, 6});
  ExpectTensor(Of(shards[1], "x"), DType::kI32, {2, 2}, {1, 2, 4, 7});
  ExpectTensor(Of(shards[0], "wide"), DType::kI64, {2, 2}, {0, -3, -5, -6});
  ExpectTensor(Of(shards[1], "pairs"), DType::kI16, {2, 2, 2}, {10, 11, 20, 21, 40, 41, 70, 71});
}

TEST_F(PackedStreams, StackedStreamsNameTheAxisBehindTheChunks) {
  const ShardPlan plan = TwoChunks(
      {FlatView("x", DType::kI32, {8}), Whole("bounds", DType::kI32, {2, 2}, {0, 4, 0, 4})});
  EXPECT_EQ(OutputAxis(plan, plan.streams[0]), 1);
  EXPECT_EQ(CutOf(plan, plan.streams[0]), (StreamCut{Extent::kLocal, 1}));
  EXPECT_EQ(CutOf(plan, plan.streams[1]).extent, Extent::kWhole);
  ShardPlan single = OneDocument({FlatView("x", DType::kI32, {4})});
  EXPECT_EQ(CutOf(single, single.streams[0]), (StreamCut{Extent::kLocal, 0}));
}

TEST_F(PackedStreams, SegmentsRunOverTheColumnsOfAllChunks) {
  // 0 0 0 1 | 1 1 0 9 of eight source columns: the second segment reaches into the second chunk.
  StreamPlan mask{"mask", DType::kU8, {8}, 0};
  mask.batch_axis = -1;
  mask.value.from = Generated{{{{0, 0, 3}, {1, 0, 3}, {0, 0, 1}, {0, 0, 0}, {9, 1, 1}}}};
  StreamPlan count{"count", DType::kI64, {8}, 0};
  count.batch_axis = -1;
  count.value.from = Generated{{{{100, 1, 8}}}};
  const std::vector<RankShard> shards = Shards(TwoChunks({mask, count}), {});
  ExpectTensor(Of(shards[0], "mask"), DType::kU8, {2, 2}, {0, 1, 1, 0});
  ExpectTensor(Of(shards[1], "mask"), DType::kU8, {2, 2}, {0, 0, 1, 9});
  ExpectTensor(Of(shards[0], "count"), DType::kI64, {2, 2}, {100, 103, 105, 106});
  ExpectTensor(Of(shards[1], "count"), DType::kI64, {2, 2}, {101, 102, 104, 107});
}

TEST_F(PackedStreams, ChunksMayHoldTheColumnsOfTheirWindowInAnyOrder) {
  // Rank 0 back to front in chunk 0; windows that are not in the order of the source.
  const ShardPlan plan = PlanWith(
      {Window(4, 4, 8, {{{2, 2}, {0, 1}}, {{1, 1}}}), Window(0, 4, 8, {{{0, 3}}, {{3, 1}}})},
      {FlatView("x", DType::kI32, {8})});
  const std::vector<RankShard> shards =
      Shards(plan, {{TensorOf("x", DType::kI32, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7})}, {}});
  ExpectTensor(Of(shards[0], "x"), DType::kI32, {2, 3}, {6, 7, 4, 0, 1, 2});
  ExpectTensor(Of(shards[1], "x"), DType::kI32, {2, 1}, {5, 3});
}

TEST_F(PackedStreams, AScalarMayDifferFromRankToRank) {
  ShardPlan plan = OneDocument({});
  plan.scalars = {{"cp_rank", {int64_t{0}, int64_t{1}}}, {"format", {std::string("thd")}}};
  const std::vector<RankShard> shards = Shards(plan, {});
  EXPECT_THAT(shards[0].batch.scalars, ElementsAre(ScalarEntry{"cp_rank", int64_t{0}},
                                                   ScalarEntry{"format", std::string("thd")}));
  EXPECT_THAT(shards[1].batch.scalars, ElementsAre(ScalarEntry{"cp_rank", int64_t{1}},
                                                   ScalarEntry{"format", std::string("thd")}));
  const absl::StatusOr<ShardResult> second =
      MakeShards(plan, {}, std::vector<int64_t>{1}, *executor_, pool_);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->shards[0].batch.scalars[0].value, Scalar(int64_t{1}));
}

// Two rows of eight: documents of 4 (3 real) and 4, then one of 8 (6 real).
Batch TwoRows() {
  return {{Tokens("input_ids", 2, 8, DType::kI32, 1), Tokens("labels", 2, 8, DType::kI64, 500),
           TensorOf("position_ids", DType::kI32, {2, 8},
                    {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7}),
           TensorOf("seq_lens", DType::kI64, {2, 2}, {3, 4, 6, -1000}),
           TensorOf("seq_lens_padded", DType::kI64, {2, 2}, {4, 4, 8, -1000})},
          {}};
}

TEST_F(PackedStreams, PackedRowsBecomeOneStreamCutPerDocument) {
  const std::vector<RankShard> shards = Shards(Thd({}), TwoRows(), 2);
  ExpectTensor(Of(shards[0], "input_ids"), DType::kI64, {8}, {1, 4, 5, 8, 1001, 1002, 1007, 1008});
  ExpectTensor(Of(shards[1], "input_ids"), DType::kI64, {8}, {2, 3, 6, 7, 1003, 1004, 1005, 1006});
  ExpectTensor(Of(shards[0], "labels"), DType::kI64, {8},
               {500, 503, 504, 507, 1500, 1501, 1506, 1507});
  ExpectTensor(Of(shards[0], "position_ids"), DType::kI64, {8}, {0, 3, 0, 3, 0, 1, 6, 7});
  ExpectTensor(Of(shards[0], "padding_mask"), DType::kBool, {8}, {0, 1, 0, 0, 0, 0, 1, 1});
  ExpectTensor(Of(shards[1], "padding_mask"), DType::kBool, {8}, {0, 0, 0, 0, 0, 0, 0, 0});
  ExpectTensor(Of(shards[0], "_thd_local_indices"), DType::kI32, {8}, {0, 3, 4, 7, 8, 9, 14, 15});
  ExpectTensor(Of(shards[1], "_thd_local_indices"), DType::kI32, {8}, {1, 2, 5, 6, 10, 11, 12, 13});
  for (const RankShard& shard : shards) {
    ExpectTensor(Of(shard, "cu_seqlens"), DType::kI32, {4}, {0, 4, 8, 16});
    ExpectTensor(Of(shard, "max_seqlen"), DType::kI32, {}, {8});
  }
}

TEST_F(PackedStreams, PackedRowsInChunksAreStacked) {
  const std::vector<RankShard> shards = Shards(Thd({.num_chunks = 2}), TwoRows(), 2);
  ExpectTensor(Of(shards[0], "input_ids"), DType::kI64, {2, 4},
               {1, 4, 5, 8, 1001, 1002, 1007, 1008});
  ExpectTensor(Of(shards[1], "input_ids"), DType::kI64, {2, 4},
               {2, 3, 6, 7, 1003, 1004, 1005, 1006});
  ExpectTensor(Of(shards[1], "position_ids"), DType::kI64, {2, 4}, {1, 2, 1, 2, 2, 3, 4, 5});
  ExpectTensor(Of(shards[0], "padding_mask"), DType::kBool, {2, 4}, {0, 1, 0, 0, 0, 0, 1, 1});
  ExpectTensor(Of(shards[1], "padding_mask"), DType::kBool, {2, 4}, {0, 0, 0, 0, 0, 0, 0, 0});
  for (const RankShard& shard : shards) {
    ExpectTensor(Of(shard, "cu_seqlens"), DType::kI32, {2, 3}, {0, 4, 8, 0, 8, -1000});
    ExpectTensor(Of(shard, "max_seqlen"), DType::kI32, {2}, {4, 8});
  }
}

// The shards of a stacked plan are those of its chunks, one behind the other.
// V4.1: three tokens are laid out in rows of 6 (labels 0 on what is left of them), which 4.2 pads
// to 8 (labels -100). Two ranks; the border lies in the middle of the second one's slots.
TEST_F(PackedStreams, ALossMaskForLabelsIsLaidOutBeforeItIsPadded) {
  for (const DType dtype : {DType::kI8, DType::kI64, DType::kBF16, DType::kF64}) {
    const Batch batch{
        {Tokens("input_ids", 1, 5), TensorOf("loss_mask", dtype, {1, 5}, {1, 0, 1, 7, 7}),
         TensorOf("seq_lens", DType::kI64, {1, 1}, {3})},
        {}};
    const std::vector<RankShard> shards = Shards(DeepseekV41({1, 6}), batch, 2);
    ExpectTensor(shards[0].batch.FindTensor("labels"), dtype, {1, 4}, {1, 0, 1, 0});
    ExpectTensor(shards[1].batch.FindTensor("labels"), dtype, {1, 4}, {0, 0, -100, -100});
    EXPECT_EQ(shards[0].batch.FindTensor("loss_mask"), nullptr);
  }
}

// The same with more than one element a token, over ranks that hold nothing but the tail.
TEST_F(PackedStreams, ATailOfTheFillIsOfEveryElementOfItsColumns) {
  const Batch batch{
      {Tokens("input_ids", 2, 1), TensorOf("loss_mask", DType::kI32, {2, 1, 2}, {1, 2, 3, 4}),
       TensorOf("seq_lens", DType::kI64, {2, 1}, {1, 1})},
      {}};
  const std::vector<RankShard> shards = Shards(DeepseekV41({1, 2}), batch, 2);
  ExpectTensor(shards[0].batch.FindTensor("labels"), DType::kI32, {2, 2, 2},
               {1, 2, 0, 0, 3, 4, 0, 0});
  ExpectTensor(shards[1].batch.FindTensor("labels"), DType::kI32, {2, 2, 2},
               {-100, -100, -100, -100, -100, -100, -100, -100});
}

TEST_F(PackedStreams, AStackedShardHoldsWhatEveryChunkAloneGives) {
  for (uint32_t seed = 0; seed < 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
    const int64_t num_chunks = 2 + upto(3), columns = 1 + upto(40), num_ranks = 1 + upto(3);
    const int64_t source_len = num_chunks * columns, inner = 1 + upto(2);
    std::vector<int64_t> owners(columns);
    for (int64_t& owner : owners) owner = upto(num_ranks - 1);
    std::vector<LayoutPlan> chunks;
    for (int64_t c = 0; c < num_chunks; ++c) {
      std::shuffle(owners.begin(), owners.end(), random);  // as many for everybody, elsewhere
      std::vector<std::vector<cpshard::Run>> parts(num_ranks);
      for (int64_t i = 0; i < columns; ++i) parts[owners[i]].push_back({i, 1});
      chunks.push_back(Window(c * columns, columns, source_len, parts));
    }
    StreamPlan generated{"mask", DType::kI32, {source_len}, 0};
    generated.batch_axis = -1;
    std::vector<Segment> segments;
    for (int64_t left = source_len; left > 0; left -= segments.back().length) {
      segments.push_back({upto(99), upto(1), 1 + upto(left - 1)});
    }
    generated.value.from = Generated{{segments}};
    const std::vector<StreamPlan> streams = {FlatView("x", DType::kI64, {source_len, inner}),
                                             FlatView("y", DType::kI16, {source_len}), generated};
    std::vector<double> x(source_len * inner), y(source_len);
    std::iota(x.begin(), x.end(), 1);
    std::iota(y.begin(), y.end(), 3000);
    const Batch batch{{TensorOf("x", DType::kI32, {num_chunks, columns, inner}, x),
                       TensorOf("y", DType::kI16, {num_chunks, columns}, y)},
                      {}};
    const std::vector<RankShard> stacked = Shards(PlanWith(chunks, streams), batch);
    for (size_t s = 0; s < streams.size(); ++s) {
      std::vector<std::vector<std::byte>> joined(num_ranks);
      for (const LayoutPlan& chunk : chunks) {
        const std::vector<RankShard> alone = Shards(PlanWith({chunk}, streams), batch);
        for (int64_t rank = 0; rank < num_ranks; ++rank) {
          const std::vector<std::byte> bytes = BytesOf(alone[rank].batch.tensors[s]);
          joined[rank].insert(joined[rank].end(), bytes.begin(), bytes.end());
        }
      }
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        EXPECT_EQ(BytesOf(stacked[rank].batch.tensors[s]), joined[rank]);
      }
    }
  }
}

}  // namespace
}  // namespace cpshard
