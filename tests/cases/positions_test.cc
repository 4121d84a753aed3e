// Positions: several axes, over padding, of packed documents, given or not.
#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class Positions : public CaseTest {};

Tensor ThreeAxes(DType dtype) {
  return TensorOf("position_ids", dtype, {3, 1, 6},
                  {0, 1, 2, 3, 4, 5, 0, 0, 1, 1, 2, 2, 0, 1, 0, 1, 0, 1});
}

// B025: positions hold small numbers exactly in every dtype but bool.
TEST_F(Positions, ThreeAxesAreCutOnTheLast) {
  const std::vector<NamedLayout> layouts = RowLayouts();
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::kBool) continue;
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const Batch batch = With(RowBatch(6), ThreeAxes(dtype));
    const std::vector<RankShard> slices = ShardsOf(layouts[0].sharder, batch, 2);
    const std::vector<RankShard> halves = ShardsOf(layouts[1].sharder, batch, 2);
    const auto expect = [&](const RankShard& shard, const Values& values) {
      ExpectTensor(shard.batch.FindTensor("position_ids"), dtype, {3, 1, 4}, values);
    };
    expect(halves[0], {0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0});
    expect(halves[1], {2, 3, 4, 5, 1, 1, 2, 2, 0, 1, 0, 1});
    expect(slices[0], {0, 1, 2, 3, 0, 0, 1, 1, 0, 1, 0, 1});
    expect(slices[1], {4, 5, 6, 7, 2, 2, 3, 4, 0, 1, 2, 3});  // each axis goes on by itself
  }
}

// B025: no axis is dropped, however many there are and however many rows share them.
TEST_F(Positions, AxesAndRowsKeepTheirPlaces) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (int64_t axes : {1, 2, 3, 4}) {
      for (int64_t rows : {1, 2, 3}) {
        for (int64_t cp_size : {1, 2, 3}) {
          SCOPED_TRACE(layout.name + ", " + std::to_string(axes) + " axes");
          const Tensor sent =
              TensorOf("position_ids", DType::kI32, {axes, rows, 6}, Count(0, axes * rows * 6));
          const Batch batch{{Tokens("input_ids", rows, 6), Tokens("labels", rows, 6), sent}, {}};
          const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, cp_size);
          for (const RankShard& shard : shards) {
            const std::vector<int64_t>& dims = shard.batch.FindTensor("position_ids")->spec.dims;
            EXPECT_EQ(dims[0], axes);
            EXPECT_EQ(dims[1], rows);
            EXPECT_EQ(dims[2], *shard.layout.padded_seq_len / cp_size);
          }
          const Tensor back = Gathered(shards, "position_ids", {.trim = true});
          EXPECT_EQ(back.spec, sent.spec);
          EXPECT_EQ(BytesOf(back), BytesOf(sent));
        }
      }
    }
  }
}

// B025: where they cannot be cut they are refused.
TEST_F(Positions, ThreeAxesOfPackedRowsAreTakenWholeOrNotAtAll) {
  const Tensor positions = TensorOf("position_ids", DType::kI64, {3, 2, 8}, Count(0, 48));
  const Batch batch = With(PackedBatch(8, {{8}, {8}}, {}), positions);
  ExpectRefused(Thd({}), batch, 2, {"position_ids", "[3, 2, 8]", "three axes"});
  ExpectRefused(Thd({.num_chunks = 2}), batch, 1, {"position_ids", "[3, 2, 8]", "three axes"});
  const RankShard whole = ShardsOf(Thd({}), batch, 1)[0];
  ExpectTensor(whole.batch.FindTensor("position_ids"), DType::kI64, {3, 1, 16}, Count(0, 48));
}

// B027
TEST_F(Positions, PositionsOverPaddingAreThoseOfTheLayout) {
  const std::vector<NamedLayout> layouts = RowLayouts();
  const std::vector<RankShard> slices = ShardsOf(layouts[0].sharder, RowBatch(7), 2);
  const std::vector<RankShard> halves = ShardsOf(layouts[1].sharder, RowBatch(7), 2);
  ExpectRow(halves[0], "position_ids", {0, 1, 6, 0});
  ExpectRow(slices[1], "position_ids", {4, 5, 6, 7});
}

// B027: the same where they were sent, in every dtype.
TEST_F(Positions, SentPositionsGetThePaddingOfTheLayoutToo) {
  const std::vector<NamedLayout> layouts = RowLayouts();
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::kBool) continue;
    const Batch batch = With(RowBatch(7), Row("position_ids", {3, 4, 5, 0, 1, 2, 3}, dtype));
    ExpectRow(ShardsOf(layouts[0].sharder, batch, 2)[1], "position_ids", {1, 2, 3, 4}, dtype);
    ExpectRow(ShardsOf(layouts[1].sharder, batch, 2)[0], "position_ids", {3, 4, 3, 0}, dtype);
  }
}

// B027: what documents there are, lengths say and positions do not.
TEST_F(Positions, PositionsDoNotMakeDocuments) {
  for (const Values& positions :
       {Values(12, 0), Count(0, 12), Values{0, 1, 2, 0, 0, 0, 1, 2, 3, 0, 0, 0}}) {
    const Batch batch = With(PackedBatch(12, {{3, 5}}, {{4, 8}}), Row("position_ids", positions));
    for (const RankShard& shard : ShardsOf(Thd({}), batch, 2)) {
      ExpectDocuments(shard, {0, 4, 12});
      const std::vector<int64_t> held = IntsOf(shard, "position_ids");
      const std::vector<int64_t> indices = IndicesOf(shard);
      for (size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i], positions[indices[i]]);
    }
  }
}

// B028
TEST_F(Positions, BoundariesAreThoseOfTheWholeStreamOnEveryRank) {
  const Batch batch = With(PackedBatch(8, {{8}}, {{8}}), Row("position_ids", Count(0, 8)));
  const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 2);
  ExpectFlat(shards[1], "position_ids", {2, 3, 4, 5});
  for (const RankShard& shard : shards) ExpectDocuments(shard, {0, 8});
}

// B028: any group, chunked or not.
TEST_F(Positions, EveryRankIsToldTheSameBoundaries) {
  for (int64_t cp_size : {1, 2, 3, 4}) {
    for (int64_t num_chunks : {1, 2}) {
      const double d = static_cast<double>(2 * cp_size);
      const Batch batch = PackedBatch(6 * cp_size, {{d, 2 * d}, {3 * d, -1000}}, {});
      const std::vector<RankShard> shards =
          ShardsOf(Thd({.num_chunks = num_chunks}), batch, cp_size);
      for (const RankShard& shard : shards) {
        if (num_chunks == 1) {
          ExpectDocuments(shard, {0, d, 3 * d, 6 * d});
        } else {
          ExpectRows(shard, "cu_seqlens", {{0, d, 3 * d}, {0, 3 * d, -1000}}, DType::kI32);
          ExpectFlat(shard, "max_seqlen", {2 * d, 3 * d}, DType::kI32);
        }
      }
    }
  }
}

// B029
TEST_F(Positions, OneRowOfPositionsServesAllRowsAndIsNotShifted) {
  const Batch batch{
      {RowsOf("input_ids", {{1, 2, 3}, {4, 5, 6}}), RowsOf("labels", {{2, 3, -100}, {5, 6, -100}})},
      {}};
  const std::vector<NamedLayout> layouts = RowLayouts();
  for (DType dtype : {DType::kI16, DType::kI32, DType::kI64, DType::kF32}) {
    const Batch given = With(batch, Row("position_ids", {5, 6, 7}, dtype));
    const std::vector<RankShard> slices = ShardsOf(layouts[0].sharder, given, 2);
    const std::vector<RankShard> halves = ShardsOf(layouts[1].sharder, given, 2);
    ExpectRows(slices[0], "position_ids", {{5, 6}, {5, 6}}, dtype);
    ExpectRows(slices[1], "position_ids", {{7, 8}, {7, 8}}, dtype);
    ExpectRows(halves[0], "position_ids", {{5, 0}, {5, 0}}, dtype);
    ExpectRows(halves[1], "position_ids", {{6, 7}, {6, 7}}, dtype);
  }
  const std::vector<RankShard> slices = ShardsOf(layouts[0].sharder, batch, 2);
  const std::vector<RankShard> halves = ShardsOf(layouts[1].sharder, batch, 2);
  ExpectRows(slices[0], "position_ids", {{0, 1}, {0, 1}});
  ExpectRows(slices[1], "position_ids", {{2, 3}, {2, 3}});
  ExpectRows(halves[0], "position_ids", {{0, 0}, {0, 0}});
  ExpectRows(halves[1], "position_ids", {{1, 2}, {1, 2}});
}

// B029: packed rows keep the positions that they were packed with, and share none.
TEST_F(Positions, PackedPositionsAreHandedOnAsTheyAreOrRefused) {
  const Batch batch = PackedBatch(8, {{8}, {8}}, {});
  for (DType dtype : {DType::kI16, DType::kI32, DType::kI64}) {
    const Batch given = With(batch, TensorOf("position_ids", dtype, {2, 8}, Count(30, 16)));
    ExpectFlat(ShardsOf(Thd({}), given, 2)[0], "position_ids",
               {30, 31, 36, 37, 38, 39, 44, 45});  // i64 where ranks are served
    ExpectFlat(ShardsOf(Thd({}), given, 1)[0], "position_ids", Count(30, 16), dtype);
  }
  ExpectRefused(Thd({}), With(batch, Row("position_ids", Count(0, 8))), 2,
                {"position_ids", "[1, 8]", "[2, 8]"});
  ExpectRefused(Thd({}), Without(batch, "position_ids"), 2, {"position_ids", "cp_size 2"});
  EXPECT_EQ(
      ShardsOf(Thd({}), Without(batch, "position_ids"), 1)[0].batch.FindTensor("position_ids"),
      nullptr);
}

}  // namespace
}  // namespace cpshard
