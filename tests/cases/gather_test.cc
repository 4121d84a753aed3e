// Shards put back: what does not belong together, what is trimmed, in which order they come.
#include <random>

#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class GatherCases : public CaseTest {
 protected:
  // Gathers `parts`, one a rank, by the layouts of `shards`.
  absl::StatusOr<Tensor> Put(const std::vector<RankShard>& shards, const std::vector<Tensor>& parts,
                             const GatherOptions& options = {}) {
    std::vector<ShardLayout> layouts;
    for (const RankShard& shard : shards) layouts.push_back(shard.layout);
    return Gather(layouts, parts, options, *executor_, pool_);
  }
};

// B057
TEST_F(GatherCases, ShardsOfTwoDTypesOrShapesAreNotPutTogether) {
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), RowBatch(8), 2);
  const Tensor half = Row("x", {1, 2, 3, 4}, DType::kF16),
               full = Row("x", {1, 2, 3, 4}, DType::kF32);
  ExpectStatus(Put(shards, {half, full}).status(), absl::StatusCode::kInvalidArgument,
               {"f16", "f32", "rank 0", "rank 1"});
  const Tensor longer = Row("x", {1, 2, 3, 4, 5}, DType::kF32);
  ExpectStatus(Put(shards, {full, longer}).status(), absl::StatusCode::kFailedPrecondition,
               {"[1, 5]", "4", "rank 1"});
}

// B057: no two dtypes are one, though their items are as wide; no two shapes.
TEST_F(GatherCases, NothingIsCastOrReinterpreted) {
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), RowBatch(8), 2);
  for (DType first : kAllDTypes) {
    for (DType second : kAllDTypes) {
      const absl::StatusOr<Tensor> both =
          Put(shards, {Row("x", {1, 0, 1, 0}, first), Row("x", {0, 1, 0, 1}, second)});
      if (first == second) {
        ASSERT_TRUE(both.ok()) << both.status();
        ExpectTensor(&*both, first, {1, 8}, {1, 0, 0, 1, 0, 1, 1, 0});
      } else {
        ExpectStatus(both.status(), absl::StatusCode::kInvalidArgument,
                     {std::string(DTypeName(first)), std::string(DTypeName(second))});
      }
    }
  }
  const Tensor good = TensorOf("x", DType::kF32, {2, 4, 3}, Count(0, 24));
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{1, 4, 6}, {2, 4, 1, 3}, {6, 4}, {2, 4, 0}, {4, 2, 3}}) {
    const Tensor other = TensorOf("x", DType::kF32, dims, Count(0, Product(dims)));
    ExpectStatus(Put(shards, {good, other}).status(), absl::StatusCode::kInvalidArgument,
                 {"[2, 4, 3]", DimsString(dims)});
  }
}

// B060
TEST_F(GatherCases, ATrimOfNothingTakesNothingAway) {
  for (int64_t length : {8, 7, 1}) {
    const Tensor back =
        Gathered(ShardsOf(RoundRobin({}), RowBatch(length), 2), "input_ids", {.trim = true});
    ExpectTensor(&back, DType::kI64, {1, length}, Count(11, length));
  }
  const Tensor back = Gathered(ShardsOf(Identity(), RowBatch(3), 1), "input_ids", {.trim = true});
  ExpectTensor(&back, DType::kI64, {1, 3}, Count(11, 3));
}

// B060: whatever is left over.
TEST_F(GatherCases, ATrimGivesBackWhatWasSentWhateverIsLeftOver) {
  std::vector<NamedLayout> layouts = AllRowLayouts();
  layouts.push_back({"identity", Identity()});
  for (const NamedLayout& layout : layouts) {
    for (int64_t cp_size : {1, 2, 3, 4}) {
      for (int64_t length = 0; length <= 4 * cp_size + 1; ++length) {
        for (DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
          SCOPED_TRACE(layout.name + " over " + std::to_string(cp_size));
          const Tensor labels = Row("labels", Count(1, length), dtype);
          const Batch batch = With(RowBatch(length), labels);
          const Tensor back =
              Gathered(ShardsOf(layout.sharder, batch, cp_size), "labels", {.trim = true});
          EXPECT_EQ(back.spec, labels.spec);
          EXPECT_EQ(BytesOf(back), BytesOf(labels));
        }
      }
    }
  }
}

// B060: packed rows have no padding of ours, and come back as rows.
TEST_F(GatherCases, PackedRowsComeBackAsTheyWereSent) {
  for (int64_t cp_size : {1, 2, 3}) {
    for (int64_t rows : {1, 2, 3}) {
      const double d = static_cast<double>(2 * cp_size);
      const Batch batch = PackedBatch(4 * cp_size, Rows(rows, {d - 1, d}), Rows(rows, {d, d}));
      const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, cp_size);
      for (const char* name : {"input_ids", "labels", "position_ids"}) {
        const Tensor* sent = batch.FindTensor(name);
        const Tensor back = Gathered(shards, name, {.trim = true});
        EXPECT_EQ(back.spec, sent->spec);
        EXPECT_EQ(BytesOf(back), BytesOf(*sent));
        const Tensor stream = Gathered(shards, name);
        EXPECT_EQ(stream.spec.dims, (std::vector<int64_t>{rows * 4 * cp_size}));
      }
    }
  }
}

// B062
TEST_F(GatherCases, ShardsArePutWhereTheirRankBelongsInWhateverOrderTheyCome) {
  std::vector<RankShard> two = ShardsOf(RoundRobin({}), RowBatch(8, 0), 2);
  std::swap(two[0], two[1]);
  const Tensor swapped = Gathered(two, "input_ids");
  ExpectTensor(&swapped, DType::kI64, {1, 8}, Count(0, 8));

  std::mt19937 random(62);
  std::vector<RankShard> four = ShardsOf(RoundRobin({}), RowBatch(16, 0), 4);
  for (int i = 0; i < 1000; ++i) {
    std::shuffle(four.begin(), four.end(), random);
    const Tensor full = Gathered(four, "input_ids");
    ExpectTensor(&full, DType::kI64, {1, 16}, Count(0, 16));
  }
}

// B062: every layout; a batch is answered in the order that its ranks were asked for.
TEST_F(GatherCases, EveryOrderOfRanksGivesTheSameStream) {
  std::vector<NamedLayout> layouts = RowLayouts();
  layouts.push_back({"thd", Thd({})});
  for (const NamedLayout& layout : layouts) {
    const bool packed = layout.name == "thd";
    const Batch batch = packed ? PackedBatch(24, {{6, 18}}, {}) : RowBatch(24);
    const Tensor want = Gathered(ShardsOf(layout.sharder, batch, 3), "labels");
    std::vector<int64_t> order = {0, 1, 2};
    do {
      SCOPED_TRACE(layout.name + testing::PrintToString(order));
      const absl::StatusOr<ShardResult> result = Shard(layout.sharder, batch, 3, order);
      ASSERT_TRUE(result.ok()) << result.status();
      for (size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(result->shards[i].layout.cp_rank, order[i]);
      }
      EXPECT_EQ(BytesOf(Gathered(result->shards, "labels")), BytesOf(want));
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// B086: of two batches of one length the layouts differ, and each gather goes by its own.
TEST_F(GatherCases, TheLayoutOfAnotherBatchIsNotTakenForItsOwn) {
  const std::vector<RankShard> pair = ShardsOf(Thd({}), PackedBatch(8, {{4, 4}}, {}), 2);
  const std::vector<RankShard> single = ShardsOf(Thd({}), PackedBatch(8, {{8}}, {}), 2);
  EXPECT_EQ(IndicesOf(pair[0]), (std::vector<int64_t>{0, 3, 4, 7}));
  const Tensor back = Gathered(pair, "input_ids");
  ExpectTensor(&back, DType::kI64, {8}, Count(0, 8));
  const absl::StatusOr<Tensor> mixed =
      GatherStream({pair[0], single[1]}, "input_ids", {}, *executor_, pool_);
  ExpectStatus(mixed.status(), absl::StatusCode::kFailedPrecondition, {"digest"});

  const std::vector<RankShard> six = ShardsOf(RoundRobin({}), RowBatch(6), 2);
  const std::vector<RankShard> ten = ShardsOf(RoundRobin({}), RowBatch(10), 2);
  const Tensor first = Gathered(six, "input_ids", {.trim = true});
  ExpectTensor(&first, DType::kI64, {1, 6}, Count(11, 6));
  ExpectStatus(
      Put(ten, {*six[0].batch.FindTensor("labels"), *six[1].batch.FindTensor("labels")}).status(),
      absl::StatusCode::kFailedPrecondition, {"4", "6"});
}

}  // namespace
}  // namespace cpshard
