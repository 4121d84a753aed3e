// Which columns a rank holds of rows: divisors, padding beyond a shard, ranks of another group.
#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class LayoutAndPartition : public CaseTest {};

// B002
TEST_F(LayoutAndPartition, RoundRobinShardsGoBackByTheirLayoutNotInRankOrder) {
  const std::vector<std::pair<int64_t, Rows>> cases = {
      {8, {{0, 1, 6, 7}, {2, 3, 4, 5}}},
      {12, {{0, 1, 10, 11}, {2, 3, 8, 9}, {4, 5, 6, 7}}},
      {16, {{0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}}}};
  for (const auto& [length, want] : cases) {
    const Batch batch = With(RowBatch(length), Row("input_ids", Count(0, length), DType::kF32));
    const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), batch, want.size());
    for (size_t rank = 0; rank < want.size(); ++rank) {
      ExpectRow(shards[rank], "input_ids", want[rank], DType::kF32);
    }
    const Tensor full = Gathered(shards, "input_ids");
    ExpectTensor(&full, DType::kF32, {1, length}, Count(0, length));
  }
}

// B002: any dtype, rank and group; contiguous shards are in rank order already.
TEST_F(LayoutAndPartition, ShardsGoBackToTheRowWhateverTheDTypeTheShapeAndTheGroup) {
  for (const NamedLayout& layout : RowLayouts()) {
    for (int64_t cp_size : {1, 2, 3, 4, 7}) {
      const int64_t length = 2 * cp_size * 3;
      for (DType dtype : kAllDTypes) {
        SCOPED_TRACE(layout.name + " " + std::string(DTypeName(dtype)) + " over " +
                     std::to_string(cp_size));
        Values values = Count(0, 2 * length * 2);
        for (double& value : values) value = static_cast<int64_t>(value) % 120;
        const Tensor sent = TensorOf("inputs_embeds", dtype, {2, length, 2}, values);
        const Batch batch{{sent, Tokens("labels", 2, length)}, {}};
        const Tensor full = Gathered(ShardsOf(layout.sharder, batch, cp_size), "inputs_embeds");
        EXPECT_EQ(full.spec, sent.spec);
        EXPECT_EQ(BytesOf(full), BytesOf(sent));
      }
    }
  }
}

// B005
TEST_F(LayoutAndPartition, ARankOfAnotherGroupIsRefusedAndBothNumbersAreNamed) {
  const Batch batch = RowBatch(16, 0);
  const absl::StatusOr<ShardResult> beyond = Shard(RoundRobin({}), batch, 2, {2});
  ExpectStatus(beyond.status(), absl::StatusCode::kInvalidArgument, {"rank 2", "2 ranks"});
  const absl::StatusOr<ShardResult> own = Shard(RoundRobin({}), batch, 2, {1});
  ASSERT_TRUE(own.ok()) << own.status();
  ExpectRow(own->shards.at(0), "input_ids", Count(4, 8));
}

// B005: every layout, every rank that is none.
TEST_F(LayoutAndPartition, NoLayoutServesARankThatTheGroupHasNot) {
  std::vector<NamedLayout> layouts = AllRowLayouts();
  layouts.push_back({"identity", Identity()});
  for (const NamedLayout& layout : layouts) {
    for (int64_t rank : {-1, 3, 4, 1 << 20}) {
      SCOPED_TRACE(layout.name);
      const absl::StatusOr<ShardResult> result = Shard(layout.sharder, RowBatch(24), 3, {0, rank});
      ExpectStatus(result.status(), absl::StatusCode::kInvalidArgument,
                   {"rank " + std::to_string(rank), "3 ranks"});
    }
  }
  const absl::StatusOr<ShardResult> packed = Shard(Thd({}), PackedBatch(8, {{8}}, {}), 2, {2});
  ExpectStatus(packed.status(), absl::StatusCode::kInvalidArgument, {"rank 2", "2 ranks"});
}

// B005: the same slip where shards come back.
TEST_F(LayoutAndPartition, ShardsOfTwoGroupsAreNotPutTogether) {
  std::vector<RankShard> shards = ShardsOf(RoundRobin({}), RowBatch(16), 2);
  shards[1] = ShardsOf(RoundRobin({}), RowBatch(16), 4)[1];
  const absl::StatusOr<Tensor> full = GatherStream(shards, "input_ids", {}, *executor_, pool_);
  ExpectStatus(full.status(), absl::StatusCode::kFailedPrecondition, {"cp_size 2 and 4"});
}

// B005: a group that the batch itself speaks of is not the one that is served.
TEST_F(LayoutAndPartition, TheGroupIsThatOfTheRequestNotOneThatTheBatchNames) {
  Batch batch = PackedBatch(8, {{8}}, {});
  batch.scalars = {{"cp_size", int64_t{4}}, {"cp_rank", int64_t{3}}};
  for (const RankShard& shard : ShardsOf(Thd({}), batch, 2)) {
    EXPECT_EQ(shard.batch.scalars[0], (ScalarEntry{"cp_size", int64_t{2}}));
    EXPECT_EQ(shard.batch.scalars[1], (ScalarEntry{"cp_rank", shard.layout.cp_rank}));
    ExpectFlatMask(shard, {0, 0, 0, 0});
  }
}

// B006
TEST_F(LayoutAndPartition, SevenTokensOverFourRanksGiveTwoToEveryRank) {
  Batch batch = RowBatch(7, 1);
  batch = With(batch, Row("labels", Count(2, 7)));
  const std::vector<RankShard> slices = ShardsOf(RowLayouts(0)[0].sharder, batch, 4);
  const std::vector<RankShard> halves = ShardsOf(RoundRobin({}), batch, 4);
  const Rows slice_ids = {{1, 2}, {3, 4}, {5, 6}, {7, 0}};
  const Rows half_ids = {{1, 0}, {2, 7}, {3, 6}, {4, 5}};
  const Rows half_labels = {{2, -100}, {3, 8}, {4, 7}, {5, 6}};
  const Rows half_positions = {{0, 0}, {1, 6}, {2, 5}, {3, 4}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    ExpectRow(slices[rank], "input_ids", slice_ids[rank]);
    ExpectRow(slices[rank], "position_ids", Count(2 * rank, 2));
    ExpectRow(halves[rank], "input_ids", half_ids[rank]);
    ExpectRow(halves[rank], "labels", half_labels[rank]);
    ExpectRow(halves[rank], "position_ids", half_positions[rank]);
    EXPECT_EQ(halves[rank].layout.padded_seq_len, 8);
    EXPECT_EQ(slices[rank].layout.padded_seq_len, 8);
  }
}

// B006
TEST_F(LayoutAndPartition, EveryRankGetsAsManyTokensWhateverTheLength) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (int64_t cp_size = 1; cp_size <= 9; ++cp_size) {
      for (int64_t length = 0; length <= 3 * cp_size + 1; ++length) {
        SCOPED_TRACE(layout.name + " over " + std::to_string(cp_size));
        const std::vector<RankShard> shards = ShardsOf(layout.sharder, RowBatch(length), cp_size);
        const int64_t divisor = 2 * cp_size;
        const int64_t padded = (length + divisor - 1) / divisor * divisor;
        for (const RankShard& shard : shards) {
          EXPECT_EQ(shard.batch.FindTensor("labels")->spec.dims,
                    (std::vector<int64_t>{1, padded / cp_size}));
          EXPECT_EQ(shard.layout.padded_seq_len, padded);
        }
      }
    }
  }
}

// B007
TEST_F(LayoutAndPartition, ContiguousPadsToTheGroupTimesThePadMultiple) {
  const SharedOptions shared{.padding_token_id = 99};
  const auto last_rank = [&](int64_t multiple, int64_t cp_size, int64_t length) {
    return ShardsOf(Contiguous({.pad_multiple = multiple}, shared), RowBatch(length, 0), cp_size)
        .back();
  };
  ExpectRow(last_rank(3, 2, 5), "input_ids", {3, 4, 99});
  ExpectRow(last_rank(3, 2, 13), "input_ids", {9, 10, 11, 12, 99, 99, 99, 99, 99});
  ExpectRow(last_rank(0, 2, 7), "input_ids", {4, 5, 6, 99});
  ExpectRow(last_rank(1, 2, 7), "input_ids", {4, 5, 6, 99});
  ExpectRow(last_rank(5, 3, 7), "input_ids", {99, 99, 99, 99, 99});
  EXPECT_EQ(last_rank(5, 3, 7).layout.padded_seq_len, 15);
}

// B007: neither lcm(2 * cp, m) nor 2 * cp * m.
TEST_F(LayoutAndPartition, ThePaddedLengthIsTheSmallestThatTheDivisorAllows) {
  for (Primary primary : {Primary::kCut, Primary::kLeaveFull}) {
    for (int64_t multiple : {-4, 0, 1, 2, 3, 4, 5, 6, 8}) {
      const Sharder sharder = Contiguous({multiple, primary}, {.padding_token_id = 0});
      for (int64_t cp_size = 1; cp_size <= 5; ++cp_size) {
        const int64_t divisor = cp_size * (multiple < 2 ? 2 : multiple);
        for (int64_t length : {0, 1, 5, 12, 13, 24, 40}) {
          const int64_t padded =
              *ShardsOf(sharder, RowBatch(length), cp_size)[0].layout.padded_seq_len;
          EXPECT_EQ(padded % divisor, 0) << multiple << " " << cp_size << " " << length;
          EXPECT_GE(padded, length);
          EXPECT_LT(padded, length + divisor);
        }
      }
    }
  }
}

// B008
TEST_F(LayoutAndPartition, RanksThatHoldNothingButPaddingAreServed) {
  Batch batch{{Row("input_ids", {5}), Row("labels", {6}), Row("padding_mask", {0}, DType::kBool)},
              {}};
  const std::vector<NamedLayout> layouts = RowLayouts(9);
  const std::vector<RankShard> slices = ShardsOf(layouts[0].sharder, batch, 4);
  const std::vector<RankShard> halves = ShardsOf(layouts[1].sharder, batch, 4);
  const Rows slice_ids = {{5, 9}, {9, 9}, {9, 9}, {9, 9}};
  const Rows half_ids = {{5, 0}, {0, 0}, {0, 0}, {0, 0}};
  const Rows labels = {{6, -100}, {-100, -100}, {-100, -100}, {-100, -100}};
  const Rows masks = {{0, 1}, {1, 1}, {1, 1}, {1, 1}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    ExpectRow(slices[rank], "input_ids", slice_ids[rank]);
    ExpectRow(slices[rank], "position_ids", Count(2 * rank, 2));
    ExpectRow(halves[rank], "input_ids", half_ids[rank]);
    ExpectRow(halves[rank], "position_ids", {0, 0});
    for (const RankShard* shard : {&slices[rank], &halves[rank]}) {
      ExpectRow(*shard, "labels", labels[rank]);
      ExpectMask(*shard, masks[rank]);
    }
  }
  for (const std::vector<RankShard>* shards : {&slices, &halves}) {
    const Tensor back = Gathered(*shards, "input_ids", {.trim = true});
    ExpectTensor(&back, DType::kI64, {1, 1}, {5});
  }
}

// B008: rows that are shorter than a shard, masks of every dtype.
TEST_F(LayoutAndPartition, RowsShorterThanAShardComeBackUnchanged) {
  for (const NamedLayout& layout : RowLayouts(9)) {
    for (int64_t cp_size : {2, 5, 8}) {
      for (int64_t length : {0, 1, 2, 3}) {
        for (DType dtype : kAllDTypes) {
          SCOPED_TRACE(layout.name + " " + std::string(DTypeName(dtype)));
          const Batch batch = With(RowBatch(length), Row("padding_mask", Values(length, 1), dtype));
          const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, cp_size);
          for (const Tensor& sent : batch.tensors) {
            EXPECT_EQ(BytesOf(Gathered(shards, sent.spec.name, {.trim = true})), BytesOf(sent));
          }
        }
      }
    }
  }
}

// B008: packed rows.
TEST_F(LayoutAndPartition, APackedDocumentOfOneTokenLeavesTheOtherRanksPadding) {
  for (int64_t cp_size : {2, 3, 4}) {
    const double width = static_cast<double>(2 * cp_size);
    const Batch batch = PackedBatch(2 * cp_size, {{1}}, {{width}});
    const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, cp_size);
    ExpectFlatMask(shards[0], {0, 1});
    for (int64_t rank = 1; rank < cp_size; ++rank) ExpectFlatMask(shards[rank], {1, 1});
    for (const RankShard& shard : shards) ExpectDocuments(shard, {0, width});
  }
}

// B011
TEST_F(LayoutAndPartition, APrimaryThatTheModelCutsIsNeitherCutNorPadded) {
  const Batch batch = RowBatch(7);
  const SharedOptions shared{.padding_token_id = 9};
  const auto aux = [&](const Sharder& sharder) { return ShardsOf(sharder, batch, 2); };
  const std::vector<RankShard> slices = aux(Contiguous({.primary = Primary::kLeaveFull}, shared));
  const std::vector<RankShard> halves = aux(RoundRobin({.primary = Primary::kLeaveFull}, shared));
  ExpectRow(slices[0], "labels", {12, 13, 14, 15});
  ExpectRow(slices[1], "labels", {16, 17, -100, -100});
  ExpectRow(halves[0], "labels", {12, 13, -100, -100});
  ExpectRow(halves[1], "labels", {14, 15, 16, 17});
  EXPECT_EQ(IndicesOf(halves[0]), (std::vector<int64_t>{0, 1, 6, 7}));
  for (int rank : {0, 1}) {
    for (const RankShard* shard : {&slices[rank], &halves[rank]}) {
      ExpectRow(*shard, "input_ids", Count(11, 7));
      EXPECT_EQ(shard->layout.original_seq_len, 7);
      EXPECT_EQ(shard->layout.padded_seq_len, 8);
    }
  }
  const std::vector<RankShard> wide =
      aux(Contiguous({.pad_multiple = 3, .primary = Primary::kLeaveFull}, shared));
  EXPECT_EQ(wide[0].layout.padded_seq_len, 12);
  ExpectRow(wide[0], "labels", {12, 13, 14, 15, 16, 17});
  ExpectRow(wide[1], "labels", Values(6, -100));
}

// B011: whatever the primary is.
TEST_F(LayoutAndPartition, AuxiliaryStreamsAreCutAsIfThePrimaryWereCutToo) {
  for (DType dtype : kAllDTypes) {
    const Batch batch{{TensorOf("inputs_embeds", dtype, {2, 7, 1}, Values(14, 1)),
                       Tokens("labels", 2, 7), Tokens("pixel_values", 3, 5, DType::kF32)},
                      {}};
    const std::vector<NamedLayout> cut = RowLayouts(), aux = AuxLayouts();
    for (size_t i = 0; i < cut.size(); ++i) {
      const std::vector<RankShard> want = ShardsOf(cut[i].sharder, batch, 3);
      const std::vector<RankShard> got = ShardsOf(aux[i].sharder, batch, 3);
      for (int rank = 0; rank < 3; ++rank) {
        SCOPED_TRACE(aux[i].name);
        EXPECT_EQ(got[rank].layout, want[rank].layout);
        EXPECT_EQ(BytesOf(got[rank].batch.tensors[0]), BytesOf(batch.tensors[0]));
        for (const char* name : {"labels", "position_ids", "pixel_values"}) {
          EXPECT_EQ(BytesOf(*got[rank].batch.FindTensor(name)),
                    BytesOf(*want[rank].batch.FindTensor(name)));
        }
      }
    }
  }
}

// B012
TEST_F(LayoutAndPartition, NineTokensOverEightRanksArePaddedBeforeTheCut) {
  const std::vector<NamedLayout> layouts = RowLayouts(0);
  const std::vector<RankShard> slices = ShardsOf(layouts[0].sharder, RowBatch(9, 1), 8);
  const std::vector<RankShard> halves = ShardsOf(layouts[1].sharder, RowBatch(9, 1), 8);
  const Rows slice_ids = {{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 0}, {0, 0}, {0, 0}, {0, 0}};
  const Rows half_ids = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {8, 9}};
  for (int64_t rank = 0; rank < 8; ++rank) {
    ExpectRow(slices[rank], "input_ids", slice_ids[rank]);
    ExpectRow(slices[rank], "position_ids", Count(2 * rank, 2));
    ExpectRow(halves[rank], "input_ids", half_ids[rank]);
    EXPECT_EQ(IndicesOf(halves[rank]), (std::vector<int64_t>{rank, 15 - rank}));
  }
}

// B012: no length is out of range of a large group.
TEST_F(LayoutAndPartition, AnyLengthIsCutOverAnyGroup) {
  for (const NamedLayout& layout : RowLayouts()) {
    for (int64_t cp_size : {8, 16, 64}) {
      for (int64_t length : {0, 1, 7, 9, 15, 16, 17, 63, 127, 128, 129}) {
        SCOPED_TRACE(layout.name + " " + std::to_string(length));
        const std::vector<RankShard> shards = ShardsOf(layout.sharder, RowBatch(length), cp_size);
        const Tensor back = Gathered(shards, "input_ids", {.trim = true});
        ExpectTensor(&back, DType::kI64, {1, length}, Count(11, length));
      }
    }
  }
}

}  // namespace
}  // namespace cpshard
