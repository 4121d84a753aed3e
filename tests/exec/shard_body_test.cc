// Shards as pieces: what is a window on the batch, what is written, who keeps what alive.
#include "core/exec/shard_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/plan/targets.h"
#include "tests/exec/bodies.h"

namespace cpshard {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Fill kSeven{Fill::Kind::kConstant, {7}};

Sharder PaddedContiguous() { return Contiguous({}, {.padding_token_id = 9}); }

// int64 ids, labels and positions: with these, contiguous rows that need no padding compute
// nothing.
Batch TokenBatch(int64_t rows, int64_t columns) {
  return {{Tokens("input_ids", rows, columns), Tokens("labels", rows, columns),
           Tokens("position_ids", rows, columns)},
          {}};
}

IndexMap MapOf(const std::vector<Run>& runs) {
  IndexMap map;
  for (const Run& run : runs) map.Append(run);
  return map;
}

ShardPlan PlanOfRows(int64_t rows, int64_t source_len, std::vector<IndexMap> placement,
                     std::vector<IndexMap> partition, std::vector<StreamPlan> streams) {
  LayoutPlan layout;
  layout.rows = rows;
  layout.source_len = source_len;
  layout.padded_len = placement.front().size();
  layout.placement = std::move(placement);
  layout.partition = std::move(partition);
  ShardPlan plan;
  plan.cp_size = static_cast<int64_t>(layout.partition.size());
  plan.chunks = {std::move(layout)};
  plan.streams = std::move(streams);
  return plan;
}

StreamPlan StreamOf(std::string name, std::vector<int64_t> dims, DType dtype = DType::kI64) {
  StreamPlan stream{name, dtype, std::move(dims)};
  stream.value.from = ViewOf{std::move(name)};
  stream.fill = kSeven;
  return stream;
}

// One row of `columns` int64 columns on two ranks, `run` columns in turn.
ShardPlan InTurn(int64_t columns, int64_t run) {
  std::vector<IndexMap> partition(2);
  for (int64_t begin = 0; begin < columns; begin += run) {
    partition[begin / run % 2].Append({begin, std::min(run, columns - begin)});
  }
  return PlanOfRows(1, columns, {IndexMap::Identity(columns)}, partition,
                    {StreamOf("x", {1, columns})});
}

using ShardBodies = ShardBodyTest;

TEST_F(ShardBodies, HoldWhatEveryLayoutGives) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 6}, {3, 7}, {2, 1024}, {1, 8192}}) {
    Batch batch = TokenBatch(rows, columns);
    batch.tensors.pop_back();  // generated in its place
    batch.tensors.push_back(Tokens("pixel_values", 3, 5, DType::kBF16));
    for (const int64_t cp_size : {1, 2, 4}) {
      for (const Sharder& sharder :
           {Identity(), PaddedContiguous(), RoundRobin({}),
            RoundRobin({.primary = Primary::kLeaveFull}),
            Contiguous({.primary = Primary::kLeaveFull}, {.padding_token_id = 9})}) {
        ExpectRightBodies(PlanOf(sharder, batch, cp_size), batch);
      }
    }
  }
}

TEST_F(ShardBodies, AreOfTheRanksAskedForInTheirOrder) {
  const Batch batch = TokenBatch(2, 8);
  const ShardPlan plan = PlanOf(RoundRobin({}), batch, 4);
  ExpectRightBodies(plan, batch, {3, 1});
  ExpectRightBodies(plan, batch, {2});
}

TEST_F(ShardBodies, LieWholeStreamsFirstThenRankByRank) {
  StreamPlan a = StreamOf("a", {1, 10}), whole = StreamOf("whole", {1, 10}),
             b = StreamOf("b", {1, 10});
  whole.extent = Extent::kPadded;
  const ShardPlan plan = PlanOfRows(1, 10, {IndexMap::Identity(10)},
                                    {MapOf({{0, 9}}), MapOf({{9, 1}})}, {a, whole, b});
  const std::vector<int64_t> ranks = {0, 1};
  const ShardBody body = PlaceShards(plan, ranks);
  // whole 0 ... 80, then 72 bytes of a and of b for rank 0, 8 bytes of each for rank 1.
  EXPECT_THAT(body.offsets, ElementsAre(128, 384, 0, 0, 256, 448));
  EXPECT_EQ(body.size, 512);
}

TEST_F(ShardBodies, LeaveOutWhatHasNoBytes) {
  const std::vector<IndexMap> partition = {MapOf({{0, 3}}), IndexMap(), MapOf({{3, 1}})};
  const ShardPlan uneven =
      PlanOfRows(2, 4, {IndexMap::Identity(4)}, partition, {StreamOf("x", {2, 4})});
  ExpectRightBodies(uneven, {{Tokens("x", 2, 4)}, {}});
  ExpectRightBodies(uneven, {{Tokens("x", 2, 4)}, {}}, {1});
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{0, 6}, {3, 0}}) {
    const Batch nothing = TokenBatch(rows, columns);
    for (const Sharder& sharder : {Identity(), PaddedContiguous(), RoundRobin({})}) {
      const ShardPlan plan = PlanOf(sharder, nothing, 2);
      ExpectRightBodies(plan, nothing);
      EXPECT_EQ(BodyOf(plan, nothing, 1).size, 0);
    }
  }
  ExpectRightBodies(PlanOf(Identity(), {}, 2), {});
}

// Lengths and ids of no rows: there is no row of values that could be generated.
TEST_F(ShardBodies, OfABatchWithoutRowsAreEmptyWhateverItIsPackedWith) {
  const SharedOptions pad_id{.padding_token_id = 0};
  for (const char* name : {"seq_lens", "seq_idx"}) {
    Batch batch = TokenBatch(0, 6);
    batch.tensors.push_back(TensorOf(name, DType::kI64, {0, 6}, {}));
    for (const Sharder& sharder :
         {Kimi(KimiVariant::kK3, pad_id), Glm5Next(Primary::kCut, pad_id), Gemma4(pad_id),
          WithTargets(Contiguous({}, pad_id), {.num_depths = 2}), WithTargets(Identity(), {}),
          WithTargets(Kimi(KimiVariant::kLinear, pad_id), {})}) {
      const ShardPlan plan = PlanOf(sharder, batch, 2);
      ExpectRightBodies(plan, batch);
      for (const RankShard& shard : ShardsOf(sharder, batch, 2)) {
        for (const Tensor& tensor : shard.batch.tensors) {
          EXPECT_EQ(NumElements(tensor.spec), 0) << tensor.spec.name;
        }
      }
    }
  }
}

TEST_F(ShardBodies, OfLongRunsAreWindowsOnTheBatch) {
  const Batch batch = TokenBatch(2, 1024);  // on two ranks runs of 4096 bytes
  const ShardBody body = BodyOf(PlanOf(Contiguous({}), batch, 2), batch, 4096);
  EXPECT_EQ(body.copied_bytes, 0);
  EXPECT_THAT(body.pieces, SizeIs(12));  // 2 ranks, 3 streams, 2 rows
  for (const Buffer& piece : body.pieces) EXPECT_TRUE(LiesIn(batch, piece));
  EXPECT_EQ(pool_.stats().bytes_idle, 0u);  // nothing was ever taken
}

TEST_F(ShardBodies, WritePaddingOnly) {
  Batch batch = TokenBatch(2, 1022);
  batch.tensors.pop_back();
  batch.tensors.pop_back();
  const ShardPlan plan =
      PlanOfRows(2, 1022, {MapOf({{0, 1022}, {kFill, 2}})},
                 {MapOf({{0, 512}}), MapOf({{512, 512}})}, {StreamOf("input_ids", {2, 1022})});
  const ShardBody body = BodyOf(plan, batch, 4000);
  EXPECT_EQ(body.copied_bytes, 2 * 2 * 8);
  EXPECT_EQ(BytesIn(batch, body.pieces), 2 * 1022 * 8);
  EXPECT_THAT(body.pieces, SizeIs(2 + 4));
}

TEST_F(ShardBodies, JoinRowsThatFollowEachOther) {
  const Batch batch = TokenBatch(64, 8);  // rows of 64 bytes, 4096 together
  const ShardBody body = BodyOf(PlanOf(Contiguous({}), batch, 1), batch, 4096);
  EXPECT_EQ(body.copied_bytes, 0);
  EXPECT_THAT(body.pieces, SizeIs(3));
}

TEST_F(ShardBodies, DoNotJoinRowsBetweenWhichAnotherRankHasAPart) {
  const Batch batch = TokenBatch(64, 8);
  const ShardPlan plan = PlanOf(Contiguous({}), batch, 2);
  EXPECT_EQ(BodyOf(plan, batch, 33).copied_bytes, 3 * 4096);
  EXPECT_THAT(BodyOf(plan, batch, 32).pieces, SizeIs(3 * 2 * 64));
}

TEST_F(ShardBodies, AreWrittenWhereRunsAreShorterThanTheThresholdOnAverage) {
  const Batch batch{{Tokens("x", 1, 1000)}, {}};
  // 20 runs of 400 bytes; 21 runs, of 8000 / 21 = 380.95 bytes on average.
  EXPECT_EQ(BodyOf(InTurn(1000, 50), batch, 400).copied_bytes, 0);
  EXPECT_EQ(BodyOf(InTurn(1000, 50), batch, 401).copied_bytes, 8000);
  EXPECT_EQ(BodyOf(InTurn(1000, 49), batch, 380).copied_bytes, 0);
  EXPECT_EQ(BodyOf(InTurn(1000, 49), batch, 381).copied_bytes, 8000);
}

TEST_F(ShardBodies, DoNotCountFillAsPartOfARun) {
  // 10 columns, 30 of fill, the next 10: two runs of 80 bytes.
  const ShardPlan plan = PlanOfRows(1, 20, {MapOf({{0, 10}, {kFill, 30}, {10, 10}})},
                                    {IndexMap::Identity(50)}, {StreamOf("x", {1, 20})});
  const Batch batch{{Tokens("x", 1, 20)}, {}};
  EXPECT_EQ(BodyOf(plan, batch, 80).copied_bytes, 240);
  EXPECT_EQ(BodyOf(plan, batch, 81).copied_bytes, 400);
}

TEST_F(ShardBodies, OfShortRunsAreOnePiece) {
  const Batch batch = TokenBatch(3, 7);
  const ShardBody body = BodyOf(PlanOf(RoundRobin({}), batch, 2), batch, 4096);
  EXPECT_THAT(body.pieces, SizeIs(1));
  EXPECT_EQ(pool_.stats().buffers_out, 1u);
}

TEST_F(ShardBodies, ViewAStreamAsSentHoweverShort) {
  const Batch batch{{Tokens("x", 1, 3)}, {}};
  const ShardBody body = BodyOf(PlanOf(Identity(), batch, 8), batch, kHuge);
  ASSERT_THAT(body.pieces, SizeIs(2));
  EXPECT_EQ(body.pieces[0].data(), batch.tensors[0].buffer.data());
  EXPECT_EQ(body.pieces[0].size(), 24u);
  EXPECT_THAT(Joined({body.pieces[1]}), Each(std::byte{0}));
  EXPECT_EQ(body.copied_bytes, 0);
}

TEST_F(ShardBodies, ViewWhatIsDerivedFromTheBufferItIsDerivedInto) {
  StreamPlan stream = StreamOf("x", {1, 1024}, DType::kI32);  // sent as int64
  const ShardPlan plan = PlanOfRows(1, 1024, {IndexMap::Identity(1024)},
                                    {MapOf({{512, 512}}), MapOf({{0, 512}})}, {stream});
  const Batch batch{{Tokens("x", 1, 1024)}, {}};
  ExpectRightBodies(plan, batch);
  ShardBody body = BodyOf(plan, batch, 2048);
  EXPECT_EQ(body.copied_bytes, 4096);
  ASSERT_THAT(body.pieces, SizeIs(2));
  EXPECT_EQ(body.pieces[0].data(), body.pieces[1].data() + 2048);
  EXPECT_EQ(pool_.stats().buffers_out, 1u);
  body.pieces.pop_back();
  EXPECT_EQ(pool_.stats().buffers_out, 1u);
  body.pieces.pop_back();
  EXPECT_EQ(pool_.stats().buffers_out, 0u);
}

TEST_F(ShardBodies, ShowOneRowThatStandsForAllOfThemToEveryRow) {
  StreamPlan stream = StreamOf("x", {3, 100});
  std::get<ViewOf>(stream.value.from).how = ViewOf::How::kBroadcastRow;
  const ShardPlan plan = PlanOfRows(3, 100, {IndexMap::Identity(100)},
                                    {MapOf({{0, 60}}), MapOf({{60, 40}})}, {stream});
  const Batch batch{{Tokens("x", 1, 100)}, {}};
  ExpectRightBodies(plan, batch);
  EXPECT_EQ(BodyOf(plan, batch, 400).copied_bytes, 0);
}

TEST_F(ShardBodies, KeepTheBatchAlive) {
  ShardBody body;
  std::weak_ptr<std::vector<std::byte>> bytes;
  {
    auto owner = std::make_shared<std::vector<std::byte>>(1024, std::byte{5});
    bytes = owner;
    std::byte* data = owner->data();
    const Batch batch{{{{"x", DType::kU8, {1, 1024}}, Buffer(std::move(owner), data, 1024)}}, {}};
    const ShardPlan plan =
        PlanOfRows(1, 1024, {IndexMap::Identity(1024)}, {MapOf({{0, 700}}), MapOf({{700, 324}})},
                   {StreamOf("x", {1, 1024}, DType::kU8)});
    body = BodyOf(plan, batch, 1);
  }
  std::vector<std::byte> expected(700, std::byte{5});
  expected.resize(704);
  expected.resize(704 + 324, std::byte{5});
  expected.resize(704 + 384);
  EXPECT_EQ(Joined(body.pieces), expected);
  EXPECT_FALSE(bytes.expired());
  body = {};
  EXPECT_TRUE(bytes.expired());
}

TEST_F(ShardBodies, GiveAPoolThatIsTooSmallEverythingBack) {
  Batch batch = TokenBatch(1, 14);
  batch.tensors.push_back(
      TensorOf("attention_mask", DType::kI64, {1, 14}, std::vector<double>(14, 1.0)));
  const ShardPlan plan = PlanOf(PaddedContiguous(), batch, 2);
  const std::vector<int64_t> ranks = {0, 1};
  size_t refused = 0;
  absl::Status status = absl::UnknownError("not tried");
  for (size_t blocks = 0; blocks < 20 && !status.ok(); ++blocks) {
    BufferPool pool({.max_bytes = blocks * 4096});
    status = ViewShards(plan, batch, ranks, *executor_, pool).status();
    EXPECT_EQ(pool.stats().buffers_out, 0u) << blocks;
    EXPECT_EQ(pool.stats().bytes_out, 0u) << blocks;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    ++refused;
  }
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(refused, 2u);  // without the derived mask's block, and with that one only
}

}  // namespace
}  // namespace cpshard
