// Lengths of packed documents: unused places, rows, padding between documents and after the last.
#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class PackedMetadata : public CaseTest {};

// B013
TEST_F(PackedMetadata, AnUnusedPlaceInTheLengthsIsNoDocument) {
  Batch batch = PackedBatch(8, {{4, 4}, {8, -1000}}, {{4, 4}, {8, -1000}});
  batch = With(batch, TensorOf("input_ids", DType::kI64, {2, 8}, Count(1, 16)));
  const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 2);
  EXPECT_EQ(IndicesOf(shards[0]), (std::vector<int64_t>{0, 3, 4, 7, 8, 9, 14, 15}));
  EXPECT_EQ(IndicesOf(shards[1]), (std::vector<int64_t>{1, 2, 5, 6, 10, 11, 12, 13}));
  for (const RankShard& shard : shards) ExpectDocuments(shard, {0, 4, 8, 16});

  const std::vector<RankShard> chunked = ShardsOf(Thd({.num_chunks = 2}), batch, 2);
  ExpectRows(chunked[0], "input_ids", {{1, 4, 5, 8}, {9, 10, 15, 16}});
  ExpectRows(chunked[1], "input_ids", {{2, 3, 6, 7}, {11, 12, 13, 14}});
  for (const RankShard& shard : chunked) {
    ExpectRows(shard, "cu_seqlens", {{0, 4, 8}, {0, 8, -1000}}, DType::kI32);
    ExpectFlat(shard, "max_seqlen", {4, 8}, DType::kI32);
  }
}

// B013
TEST_F(PackedMetadata, RealAndPaddedLengthsMustListTheSameDocuments) {
  const Batch fewer_padded = PackedBatch(8, {{4, 4}}, {{8, -1000}});
  const Batch fewer_real = PackedBatch(8, {{8, -1000}}, {{4, 4}});
  for (int64_t cp_size : {1, 2}) {
    ExpectRefused(Thd({}), fewer_padded, cp_size,
                  {"row 0", "'seq_lens' has 2", "'seq_lens_padded' has 1"});
    ExpectRefused(Thd({}), fewer_real, cp_size,
                  {"row 0", "'seq_lens' has 1", "'seq_lens_padded' has 2"});
  }
}

// B013: wherever the unused place stands, whatever the dtype of the lengths.
TEST_F(PackedMetadata, UnusedPlacesMayStandAnywhereInIntegersOfAnyWidth) {
  const std::vector<RankShard> want = ShardsOf(Thd({}), PackedBatch(12, {{4, 8}}, {}), 2);
  for (const Values& lens : {Values{-1000, 4, 8},
                             {4, -1000, 8},
                             {4, 8, -1000, -1000},
                             {-1000, -1000, 4, -1000, 8, -1000}}) {
    for (DType dtype : {DType::kI16, DType::kI32, DType::kI64}) {
      Batch batch = PackedBatch(12, {lens}, {});
      batch = With(batch, Row("seq_lens", lens, dtype));
      batch = With(batch, Row("seq_lens_padded", {4, 8}));  // as many documents, another width
      const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 2);
      for (int rank : {0, 1}) {
        EXPECT_EQ(IndicesOf(shards[rank]), IndicesOf(want[rank]));
        ExpectDocuments(shards[rank], {0, 4, 12});
      }
    }
  }
}

// B013: no other filler is taken for one.
TEST_F(PackedMetadata, OtherNegativeLengthsAreRefused) {
  for (double filler : {-1.0, -100.0, -999.0, -1001.0}) {
    const std::string named = std::to_string(static_cast<int>(filler));
    for (int64_t cp_size : {1, 2}) {
      ExpectRefused(Thd({}), PackedBatch(8, {{8, filler}}, {}), cp_size,
                    {"'seq_lens' row 0", "entry 1", named});
      ExpectRefused(Thd({}), PackedBatch(8, {{8, -1000}}, {{8, filler}}), cp_size,
                    {"'seq_lens_padded' row 0", "entry 1", named});
    }
  }
}

// B013: places that are all unused are no document either.
TEST_F(PackedMetadata, RowsWithoutADocumentAreRefusedWhereTheyWouldShiftOthers) {
  ExpectRefused(Thd({}), PackedBatch(8, {{-1000}}, {}), 2, {"seq_lens", "no document"});
  ExpectRefused(Thd({}), PackedBatch(8, {{-1000}, {8}}, {}), 2, {"row 0", "sum to 0", "S = 8"});
  ExpectRefused(Thd({}), PackedBatch(8, {{-1000}, {8}}, {}), 1, {"row 0", "sum to 0", "S = 8"});
  ExpectRefused(Thd({}), PackedBatch(8, {{8}, {-1000}}, {}), 2, {"row 1", "sum to 0", "S = 8"});
  ExpectRefused(Thd({}), PackedBatch(8, {{8}, {-1000}}, {{8}, {-1000}}), 2, {"row 1", "sum to 0"});
}

// B015
TEST_F(PackedMetadata, TokensBehindTheLastDocumentAreNotHandedOutTwice) {
  ExpectRefused(Thd({}), PackedBatch(12, {{3, 3}}, {{4, 4}}), 2, {"row 0", "8", "S = 12"});
  ExpectRefused(Thd({}), PackedBatch(8, {{12}}, {{12}}), 2, {"row 0", "12", "S = 8"});

  const std::vector<RankShard> shards = ShardsOf(Thd({}), PackedBatch(12, {{4, 2}}, {{4, 2}}), 2);
  EXPECT_EQ(IndicesOf(shards[0]), (std::vector<int64_t>{0, 3, 4, 5, 10, 11}));
  EXPECT_EQ(IndicesOf(shards[1]), (std::vector<int64_t>{1, 2, 6, 7, 8, 9}));
  ExpectFlatMask(shards[0], {0, 0, 0, 0, 1, 1});
  ExpectFlatMask(shards[1], {0, 0, 1, 1, 1, 1});
  for (const RankShard& shard : shards) ExpectDocuments(shard, {0, 4, 12});
}

// B015: a tail is absorbed by the last document alone, and only where that can be cut.
TEST_F(PackedMetadata, ATailIsAbsorbedOnlyByALastDocumentThatCanBeCut) {
  // The documents before it have padding of their own, so the last one takes nothing over.
  ExpectRefused(Thd({}), PackedBatch(16, {{3, 5}}, {{4, 8}}), 2, {"12", "S = 16"});
  // No padded lengths: nothing says that there is padding.
  ExpectRefused(Thd({}), PackedBatch(12, {{4, 4}}, {}), 2, {"8", "S = 12"});
  // A row that is not the last.
  ExpectRefused(Thd({}), PackedBatch(8, {{4}, {8}}, {{4}, {8}}), 2, {"row 0", "4", "S = 8"});
  // Chunks have a last row each.
  for (const RankShard& shard :
       ShardsOf(Thd({.num_chunks = 2}), PackedBatch(8, {{4}, {8}}, {{4}, {8}}), 2)) {
    ExpectRows(shard, "cu_seqlens", {{0, 8}, {0, 8}}, DType::kI32);
  }
  // Extending the last one does not help the first one over 3 ranks.
  ExpectRefused(Thd({}), PackedBatch(12, {{4, 2}}, {{4, 2}}), 3,
                {"document 0", "4", "2 * cp_size = 6"});
  // Padding in another row.
  ExpectRefused(Thd({}), PackedBatch(8, {{4, 1}, {4, 2}}, {{4, 4}, {4, 2}}), 2, {"row 1", "6"});
  // A document may not reach beyond its row on one rank either.
  ExpectRefused(Thd({}), PackedBatch(8, {{12, -1000}}, {{12, -1000}}), 1, {"12", "S = 8"});
}

// B015: on one rank nothing is cut, and what is left is padding.
TEST_F(PackedMetadata, OneRankFlagsTheTailAsPadding) {
  const RankShard shard = ShardsOf(Thd({}), PackedBatch(12, {{3, 3}}, {{4, 4}}), 1)[0];
  ExpectFlatMask(shard, {0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1});
  ExpectFlat(shard, "cu_seqlens", {0, 3, 6}, DType::kI32);
  ExpectFlat(shard, "cu_seqlens_padded", {0, 4, 8}, DType::kI32);
  ExpectFlat(shard, "input_ids", Count(0, 12));
}

// B016
TEST_F(PackedMetadata, TheLastRealTokenOfAnOddDocumentIsThereAndReal) {
  Batch batch = PackedBatch(8, {{7}}, {{8}});
  batch = With(batch, Row("input_ids", {11, 12, 13, 14, 15, 16, 17, 0}));
  batch = With(batch, Row("labels", {12, 13, 14, 15, 16, 17, -100, -100}));
  const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 2);
  EXPECT_EQ(IndicesOf(shards[0]), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(IndicesOf(shards[1]), (std::vector<int64_t>{2, 3, 4, 5}));
  ExpectFlat(shards[0], "input_ids", {11, 12, 17, 0});
  ExpectFlat(shards[1], "input_ids", {13, 14, 15, 16});
  ExpectFlat(shards[0], "labels", {12, 13, -100, -100});
  ExpectFlat(shards[1], "labels", {14, 15, 16, 17});
  ExpectFlatMask(shards[0], {0, 0, 0, 1});
  ExpectFlatMask(shards[1], {0, 0, 0, 0});
  for (const RankShard& shard : shards) ExpectDocuments(shard, {0, 8});
}

// B016, B018: documents of any real length in any padded one, two in a row.
TEST_F(PackedMetadata, EveryRealTokenIsOnOneRankAndNotFlaggedAndNoOtherIs) {
  for (int64_t cp_size : {1, 2, 3}) {
    const int64_t wide = 2 * cp_size;
    for (int64_t first = 0; first <= wide; ++first) {
      for (int64_t second = 0; second <= 2 * wide; ++second) {
        if (first + second == 0) continue;
        SCOPED_TRACE(std::to_string(first) + ", " + std::to_string(second));
        const Rows real = {{static_cast<double>(first), static_cast<double>(second)}};
        const Rows padded = {{static_cast<double>(wide), static_cast<double>(2 * wide)}};
        std::vector<bool> flagged(3 * wide), seen(3 * wide);
        for (const RankShard& shard :
             ShardsOf(Thd({}), PackedBatch(3 * wide, real, padded), cp_size)) {
          const std::vector<int64_t> ids = IntsOf(shard, "input_ids");
          const std::vector<int64_t> mask = IntsOf(shard, "padding_mask");
          for (size_t i = 0; i < ids.size(); ++i) {
            EXPECT_FALSE(seen[ids[i]]);
            seen[ids[i]] = true;
            flagged[ids[i]] = mask[i] != 0;
          }
        }
        for (int64_t i = 0; i < 3 * wide; ++i) {
          EXPECT_TRUE(seen[i]) << i;
          EXPECT_EQ(flagged[i], i < wide ? i >= first : i >= wide + second) << i;
        }
      }
    }
  }
}

// B018
TEST_F(PackedMetadata, DocumentsAreCutByTheirPaddedLengths) {
  Batch batch = PackedBatch(12, {{3, 5}}, {{4, 8}});
  batch = With(batch, Row("input_ids", {10, 11, 12, 0, 20, 21, 22, 23, 24, 0, 0, 0}));
  batch = With(batch, Row("labels", {11, 12, -100, -100, 21, 22, 23, 24, -100, -100, -100, -100}));
  const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 2);
  EXPECT_EQ(IndicesOf(shards[0]), (std::vector<int64_t>{0, 3, 4, 5, 10, 11}));
  EXPECT_EQ(IndicesOf(shards[1]), (std::vector<int64_t>{1, 2, 6, 7, 8, 9}));
  ExpectFlat(shards[0], "input_ids", {10, 0, 20, 21, 0, 0});
  ExpectFlat(shards[1], "input_ids", {11, 12, 22, 23, 24, 0});
  ExpectFlat(shards[0], "labels", {11, -100, 21, 22, -100, -100});
  ExpectFlat(shards[1], "labels", {12, -100, 23, 24, -100, -100});
  ExpectFlatMask(shards[0], {0, 1, 0, 0, 1, 1});
  ExpectFlatMask(shards[1], {0, 0, 0, 0, 0, 1});
  for (const RankShard& shard : shards) {
    ExpectDocuments(shard, {0, 4, 12});
    EXPECT_EQ(shard.batch.FindTensor("cu_seqlens_padded"), nullptr);
  }
}

// B018: one rank is told both.
TEST_F(PackedMetadata, OneRankIsToldRealAndPaddedBoundaries) {
  const RankShard shard = ShardsOf(Thd({}), PackedBatch(12, {{3, 5}}, {{4, 8}}), 1)[0];
  ExpectFlat(shard, "cu_seqlens", {0, 3, 8}, DType::kI32);
  ExpectFlat(shard, "cu_seqlens_padded", {0, 4, 12}, DType::kI32);
  ExpectTensor(shard.batch.FindTensor("max_seqlen"), DType::kI32, {}, {5});
}

// B019
TEST_F(PackedMetadata, ARowBeginsWhereTheRowBeforeItEndsPaddingIncluded) {
  const std::vector<RankShard> shards =
      ShardsOf(Thd({}), PackedBatch(8, {{3}, {5}}, {{8}, {8}}), 2);
  EXPECT_EQ(IndicesOf(shards[0]), (std::vector<int64_t>{0, 1, 6, 7, 8, 9, 14, 15}));
  EXPECT_EQ(IndicesOf(shards[1]), (std::vector<int64_t>{2, 3, 4, 5, 10, 11, 12, 13}));
  ExpectFlatMask(shards[0], {0, 0, 1, 1, 0, 0, 1, 1});
  ExpectFlatMask(shards[1], {0, 1, 1, 1, 0, 0, 0, 1});
  for (const RankShard& shard : shards) ExpectDocuments(shard, {0, 8, 16});
}

// B019: any rows; those that would not keep to their stride are refused.
TEST_F(PackedMetadata, EveryRowBeginsAtItsStride) {
  for (int64_t rows : {1, 2, 3, 5}) {
    Rows real, padded;
    Values cu_seqlens = {0};
    for (int64_t row = 0; row < rows; ++row) {
      const double begin = static_cast<double>(12 * row);
      real.push_back({static_cast<double>(row % 5), 1});
      padded.push_back({4, 8});
      cu_seqlens.push_back(begin + 4);
      cu_seqlens.push_back(begin + 12);
    }
    const std::vector<RankShard> shards = ShardsOf(Thd({}), PackedBatch(12, real, padded), 2);
    for (const RankShard& shard : shards) {
      ExpectDocuments(shard, cu_seqlens);
      const std::vector<int64_t> mask = IntsOf(shard, "padding_mask");
      const std::vector<int64_t> ids = IntsOf(shard, "input_ids");
      for (size_t i = 0; i < ids.size(); ++i) {
        const int64_t row = ids[i] / 12, column = ids[i] % 12;
        const bool pad = column < 4 ? column >= row % 5 : column >= 5;
        EXPECT_EQ(mask[i] != 0, pad) << "row " << row << " column " << column;
      }
    }
    for (double short_by : {4.0, 8.0}) {
      if (rows == 1) continue;
      Rows shorter = padded;
      shorter[rows - 2] = {4, 8 - short_by};
      real[rows - 2] = {0, 0};
      ExpectRefused(Thd({}), PackedBatch(12, real, shorter), 2,
                    {"row " + std::to_string(rows - 2), "S = 12"});
    }
  }
}

// B020
TEST_F(PackedMetadata, LengthsUnderAnotherNameAreNotTakenForOneDocument) {
  for (const char* name : {"seq_len", "seqlens", "seq_lengths", "Seq_lens", "cu_seqlens",
                           "packed_seq_params.seq_lens"}) {
    Batch batch = PackedBatch(8, {{4, 4}}, {});
    batch.tensors.back().spec.name = name;
    ExpectRefused(Thd({}), batch, 2, {"'seq_lens'", "cp_size 2"});
  }
  Batch scalar = Without(PackedBatch(8, {{4, 4}}, {}), "seq_lens");
  scalar.scalars = {{"seq_lens", std::string("[[4, 4]]")}};
  ExpectRefused(Thd({}), scalar, 2, {"'seq_lens'", "scalar"});
  // Padded lengths alone do not say what is real.
  ExpectRefused(Thd({}), Without(PackedBatch(8, {{4, 4}}, {{4, 4}}), "seq_lens"), 2,
                {"'seq_lens'", "cp_size 2"});
}

// B020
TEST_F(PackedMetadata, EveryShardSaysWhatItsDocumentsAre) {
  for (int64_t cp_size : {2, 3}) {
    const double length = static_cast<double>(2 * cp_size);
    for (const RankShard& shard :
         ShardsOf(Thd({}), PackedBatch(4 * cp_size, {{length, length}}, {}), cp_size)) {
      ExpectDocuments(shard, {0, length, 2 * length});
      ExpectFlatMask(shard, {0, 0, 0, 0});
      const std::vector<ScalarEntry> want = {{"qkv_format", std::string("thd")},
                                             {"cp_size", cp_size},
                                             {"cp_rank", shard.layout.cp_rank}};
      EXPECT_EQ(shard.batch.scalars, want);
    }
  }
}

// B020: boundaries of another pack that came along are not taken for its own. Those that the
// partition would go by are refused, at one rank they stay (T30).
TEST_F(PackedMetadata, BoundariesThatCameWithTheBatchDoNotReachTheRanks) {
  Batch batch = PackedBatch(12, {{4, 8}}, {{4, 8}});
  batch = With(batch, TensorOf("cu_seqlens", DType::kI32, {3}, {0, 6, 12}));
  batch = With(batch, TensorOf("max_seqlen", DType::kI64, {}, {99}));
  const Batch stale = With(batch, TensorOf("cu_seqlens_padded", DType::kI32, {3}, {0, 6, 12}));
  const Batch agreeing = With(batch, TensorOf("cu_seqlens_padded", DType::kI32, {3}, {0, 4, 12}));
  ExpectRefused(Thd({}), stale, 2,
                {"'cu_seqlens_padded'", "2 documents", "cp_size 2", "leave it out"});
  for (const Batch& sent : {batch, agreeing}) {
    for (const RankShard& shard : ShardsOf(Thd({}), sent, 2)) {
      ExpectDocuments(shard, {0, 4, 12});
      for (const char* name : {"cu_seqlens_padded", "seq_lens", "seq_lens_padded"}) {
        EXPECT_EQ(shard.batch.FindTensor(name), nullptr) << name;
      }
    }
  }
  // What the conversion does not make stays as it was sent.
  const RankShard whole = ShardsOf(Thd({}), stale, 1)[0];
  ExpectDocuments(whole, {0, 4, 12});
  ExpectFlat(whole, "cu_seqlens_padded", {0, 6, 12}, DType::kI32);
}

// B020: where the conversion makes padded boundaries of its own, those that were sent do not count.
TEST_F(PackedMetadata, BoundariesThatCameWithTheBatchGiveWayToPaddedOnesThatAreMade) {
  Batch batch = PackedBatch(12, {{3, 7}}, {{4, 8}});
  batch = With(batch, TensorOf("cu_seqlens_padded", DType::kI32, {3}, {0, 6, 12}));
  for (const RankShard& shard : ShardsOf(Thd({}), batch, 2)) {
    ExpectDocuments(shard, {0, 4, 12});
    EXPECT_EQ(shard.batch.FindTensor("cu_seqlens_padded"), nullptr);
  }
  ExpectFlat(ShardsOf(Thd({}), batch, 1)[0], "cu_seqlens_padded", {0, 4, 12}, DType::kI32);
}

// B020: one rank without lengths is told of no documents at all.
TEST_F(PackedMetadata, WithoutLengthsOneRankGetsNoBoundaries) {
  const Batch batch = Without(PackedBatch(8, {{8}}, {}), "seq_lens");
  const absl::StatusOr<ShardResult> result = Shard(Thd({}, {.padding_token_id = 7}), batch, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  const RankShard& shard = result->shards.at(0);
  EXPECT_EQ(shard.batch.FindTensor("cu_seqlens"), nullptr);
  EXPECT_EQ(shard.batch.FindTensor("max_seqlen"), nullptr);
  ExpectFlatMask(shard, {0, 0, 0, 0, 0, 0, 0, 1});
}

// B024
TEST_F(PackedMetadata, LayoutsThatCannotKeepDocumentsApartRefuseThem) {
  const Batch packed = With(With(RowBatch(8), Row("position_ids", {0, 1, 2, 3, 0, 1, 2, 3})),
                            Row("seq_lens", {4, 4}));
  ExpectRefused(RoundRobin({}), packed, 2, {"seq_lens", "round_robin", "thd"});
  EXPECT_EQ(IndicesOf(ShardsOf(Thd({}), packed, 2)[0]), (std::vector<int64_t>{0, 3, 4, 7}));
}

// B024: whatever says that there are documents, with the primary cut or not.
TEST_F(PackedMetadata, NothingThatSpeaksOfDocumentsPassesRoundRobin) {
  for (Primary primary : {Primary::kCut, Primary::kLeaveFull}) {
    const Sharder sharder = RoundRobin({.primary = primary});
    for (const char* name :
         {"seq_lens", "seq_lens_padded", "cu_seqlens", "cu_seqlens_padded", "_packed_seq_ids"}) {
      for (DType dtype : {DType::kI32, DType::kI64}) {
        ExpectRefused(sharder, With(RowBatch(8), Row(name, {4, 4}, dtype)), 2, {name, "thd"});
      }
    }
    Batch batch = RowBatch(8);
    batch.scalars = {{"qkv_format", std::string("thd")}};
    ExpectRefused(sharder, batch, 2, {"qkv_format", "thd"});
    batch.scalars = {{"qkv_format", std::string("bshd")}};
    ShardsOf(sharder, batch, 2);
  }
}

// B024: positions alone are cut as one row, as the reference cuts them.
TEST_F(PackedMetadata, PositionsThatBeginAgainAreCutAsOneRow) {
  const Batch packed = With(RowBatch(8), Row("position_ids", {0, 1, 2, 3, 0, 1, 2, 3}));
  const RankShard shard = ShardsOf(RoundRobin({}), packed, 2)[0];
  EXPECT_EQ(IndicesOf(shard), (std::vector<int64_t>{0, 1, 6, 7}));
  ExpectRow(shard, "position_ids", {0, 1, 2, 3});
}

}  // namespace
}  // namespace cpshard
