// Labels where a shard begins and ends: shifted before the cut, of the right shape and length.
#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class ShardEdges : public CaseTest {};

// B042
TEST_F(ShardEdges, NextTokenTargetsAreThoseOfTheWholeRow) {
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), RowBatch(8, 0), 2);
  ExpectRow(shards[0], "labels", {1, 2, 7, -100});
  ExpectRow(shards[1], "labels", {3, 4, 5, 6});
}

// B042: every layout, group and depth: beside each id stands the id that followed it in the row.
TEST_F(ShardEdges, BesideEveryIdStandsWhatFollowedItInTheRow) {
  for (const NamedLayout& layout : RowLayouts(-1)) {
    for (int64_t cp_size : {1, 2, 3, 4}) {
      for (int64_t length : {8, 9, 24}) {
        for (const RankShard& shard : ShardsOf(layout.sharder, RowBatch(length, 1), cp_size)) {
          SCOPED_TRACE(layout.name + " over " + std::to_string(cp_size));
          const std::vector<int64_t> ids = IntsOf(shard, "input_ids");
          const std::vector<int64_t> labels = IntsOf(shard, "labels");
          for (size_t i = 0; i < ids.size(); ++i) {
            EXPECT_EQ(labels[i], ids[i] < 1 || ids[i] == length ? -100 : ids[i] + 1);
          }
        }
      }
    }
  }
}

// B042: of every document, where there are several.
TEST_F(ShardEdges, BesideEveryPackedIdStandsWhatFollowedItInItsDocument) {
  for (int64_t cp_size : {1, 2, 3}) {
    const int64_t d = 2 * cp_size;
    Values labels = Count(1, 3 * d);
    labels[d - 1] = labels[3 * d - 1] = -100;
    const Rows lens = {{static_cast<double>(d), static_cast<double>(2 * d)}};
    const Batch batch = With(PackedBatch(3 * d, lens, {}), Row("labels", labels));
    for (const RankShard& shard : ShardsOf(Thd({}), batch, cp_size)) {
      const std::vector<int64_t> ids = IntsOf(shard, "input_ids");
      const std::vector<int64_t> held = IntsOf(shard, "labels");
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(held[i], ids[i] == d - 1 || ids[i] == 3 * d - 1 ? -100 : ids[i] + 1);
      }
    }
  }
}

// B045
TEST_F(ShardEdges, LabelsThatComeBackTrimmedLineUpWithTheRow) {
  const Batch batch = With(RowBatch(6, 1), Row("loss_mask", Count(70, 6), DType::kF32));
  const std::vector<RankShard> shards = ShardsOf(RowLayouts()[0].sharder, batch, 2);
  const Tensor labels = Gathered(shards, "labels", {.trim = true});
  ExpectTensor(&labels, DType::kI64, {1, 6}, {2, 3, 4, 5, 6, -100});
  const Tensor weights = Gathered(shards, "loss_mask", {.trim = true});
  ExpectTensor(&weights, DType::kF32, {1, 6}, Count(70, 6));
}

// B045: a tensor that the model made comes back by the layout of the batch, not by its name.
TEST_F(ShardEdges, LossesOfEveryDTypeComeBackBesideTheirLabels) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      for (int64_t cp_size : {1, 2, 3}) {
        SCOPED_TRACE(layout.name + " " + std::string(DTypeName(dtype)));
        const std::vector<RankShard> shards = ShardsOf(layout.sharder, RowBatch(7, 1), cp_size);
        std::vector<ShardLayout> layouts;
        std::vector<Tensor> losses;
        for (const RankShard& shard : shards) {
          Values values;  // the loss of a token is its label
          for (int64_t label : IntsOf(shard, "labels"))
            values.push_back(static_cast<double>(label));
          layouts.push_back(shard.layout);
          losses.push_back(Row("per_token_loss", values, dtype));
        }
        const absl::StatusOr<Tensor> full =
            Gather(layouts, losses, {.trim = true}, *executor_, pool_);
        ASSERT_TRUE(full.ok()) << full.status();
        ExpectTensor(&*full, dtype, {1, 7}, {2, 3, 4, 5, 6, 7, -100});
      }
    }
  }
}

// B046
TEST_F(ShardEdges, LabelsAreHandedOnUnshifted) {
  for (const NamedLayout& layout : RowLayouts(-100)) {
    for (DType dtype : {DType::kI8, DType::kI32, DType::kI64}) {
      const Batch batch{{Row("input_ids", Count(11, 8), dtype), Row("labels", Count(11, 8), dtype)},
                        {}};
      for (const RankShard& shard : ShardsOf(layout.sharder, batch, 2)) {
        EXPECT_EQ(BytesOf(*shard.batch.FindTensor("labels")),
                  BytesOf(*shard.batch.FindTensor("input_ids")));
      }
    }
  }
  const Batch packed = With(PackedBatch(12, {{4, 8}}, {}), Row("labels", Count(0, 12)));
  for (int64_t cp_size : {1, 2}) {
    for (const RankShard& shard : ShardsOf(Thd({}), packed, cp_size)) {
      EXPECT_EQ(IntsOf(shard, "labels"), IntsOf(shard, "input_ids"));
    }
  }
  const RankShard whole = ShardsOf(Identity(), packed, 2)[1];
  ExpectRow(whole, "labels", Count(0, 12));
}

// B047
TEST_F(ShardEdges, LabelsOfOnePerRowAreRefused) {
  for (int64_t length : {4, 3}) {
    const Batch batch{
        {Tokens("input_ids", 2, length), TensorOf("labels", DType::kI64, {2}, {1, 0})}, {}};
    const std::string expected = "[2, " + std::to_string(length);
    for (const NamedLayout& layout : AllRowLayouts()) {
      SCOPED_TRACE(layout.name);
      ExpectRefused(layout.sharder, batch, 2, {"labels", "[2]", expected});
    }
  }
}

// B047: of every dtype and of every stream that goes with the tokens; packed rows too.
TEST_F(ShardEdges, StreamsOfOnePerRowAreRefusedWhateverTheirName) {
  for (DType dtype : kAllDTypes) {
    for (const NamedLayout& layout : AllRowLayouts()) {
      for (const char* name : {"labels", "loss_mask", "padding_mask", "position_ids"}) {
        SCOPED_TRACE(layout.name + " " + name);
        const Batch batch{{Tokens("input_ids", 2, 4), Tokens("labels", 2, 4)}, {}};
        ExpectRefused(layout.sharder, With(batch, TensorOf(name, dtype, {2}, {1, 0})), 2,
                      {name, "[2]", "[2, 4"});
      }
    }
    for (int64_t cp_size : {1, 2}) {
      for (const char* name : {"labels", "position_ids"}) {
        const Batch packed = PackedBatch(4, {{4}, {4}}, {});
        ExpectRefused(Thd({}), With(packed, TensorOf(name, dtype, {2}, {1, 0})), cp_size,
                      {name, "[2]", "[2, 4"});
      }
    }
  }
}

// B049
TEST_F(ShardEdges, LabelsOneShorterThanTheIdsAreRefused) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (int64_t length : {8, 7}) {
      SCOPED_TRACE(layout.name);
      const Batch batch = With(RowBatch(length), Row("labels", Count(0, length - 1)));
      ExpectRefused(layout.sharder, batch, 2,
                    {"labels", "length " + std::to_string(length - 1), std::to_string(length)});
    }
  }
}

// B049: any stream that is cut, any difference; packed by one a document.
TEST_F(ShardEdges, StreamsOfAnotherLengthThanTheIdsAreRefused) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (const char* name : {"labels", "loss_mask", "padding_mask", "position_ids"}) {
      for (int64_t length : {0, 6, 7, 9, 16}) {
        for (DType dtype : {DType::kI64, DType::kF32}) {
          SCOPED_TRACE(layout.name + " " + name);
          ExpectRefused(layout.sharder, With(RowBatch(8), Row(name, Values(length, 0), dtype)), 2,
                        {name, "[1, " + std::to_string(length) + "]", "8"});
        }
      }
    }
  }
  for (int64_t cp_size : {1, 2}) {
    for (const char* name : {"labels", "position_ids"}) {
      for (int64_t length : {0, 6, 7, 9, 16}) {
        const Batch batch = With(PackedBatch(8, {{4, 4}}, {}), Row(name, Values(length, 0)));
        ExpectRefused(Thd({}), batch, cp_size, {name, "[1, " + std::to_string(length) + "]", "8"});
      }
    }
  }
}

// B049: streams that the caller declares.
TEST_F(ShardEdges, DeclaredStreamsOfAnotherLengthAreRefused) {
  const SharedOptions shared{.padding_token_id = 0, .extra_streams = {{"logprobs", 1}}};
  for (const Sharder& sharder : {Contiguous({}, shared), RoundRobin({}, shared)}) {
    for (int64_t length : {7, 9}) {
      ExpectRefused(sharder, With(RowBatch(8), Row("logprobs", Values(length, 0), DType::kF32)), 2,
                    {"logprobs", "length " + std::to_string(length), "8"});
    }
  }
}

}  // namespace
}  // namespace cpshard
