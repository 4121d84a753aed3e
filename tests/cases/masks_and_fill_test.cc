// What says that a token is padding, and what stands in the padding.
#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class MasksAndFill : public CaseTest {
 protected:
  // padding_mask of both ranks of a contiguous cut that got this mask.
  void ExpectDerived(const Tensor& mask, const Values& first, const Values& second) {
    const int64_t length = static_cast<int64_t>(first.size() + second.size());
    Batch batch = RowBatch(mask.spec.dims.back());
    batch.tensors.push_back(mask);
    for (const NamedLayout& layout : {RowLayouts()[0], AuxLayouts()[0]}) {
      SCOPED_TRACE(layout.name + " " + std::string(DTypeName(mask.spec.dtype)));
      const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, 2);
      EXPECT_EQ(shards[0].layout.padded_seq_len, length);
      ExpectMask(shards[0], first);
      ExpectMask(shards[1], second);
      for (const RankShard& shard : shards) {
        EXPECT_EQ(shard.batch.FindTensor("attention_mask"), nullptr);
      }
    }
  }
};

// B031
TEST_F(MasksAndFill, ATokenWithThePaddingIdIsNotPaddingInsideItsDocument) {
  const auto masks = [&](int64_t pad_id, const Values& ids, const Values& real,
                         const Values& padded) {
    const Batch batch = With(PackedBatch(8, {real}, {padded}), Row("input_ids", ids));
    return ShardsOf(Thd({}, {.padding_token_id = pad_id}), batch, 2);
  };
  const std::vector<RankShard> zero = masks(0, {0, 5, 0, 6, 7, 0, 0, 0}, {5}, {8});
  ExpectFlatMask(zero[0], {0, 0, 1, 1});
  ExpectFlatMask(zero[1], {0, 0, 0, 1});
  const std::vector<RankShard> eos = masks(2, {11, 2, 2, 2, 21, 22, 2, 2}, {2, 3}, {4, 4});
  ExpectFlatMask(eos[0], {0, 1, 0, 1});
  ExpectFlatMask(eos[1], {0, 1, 0, 0});
}

// B031: no id, no dtype and no mask that was sent has a say.
TEST_F(MasksAndFill, ThePaddingOfPackedRowsFollowsFromTheirLengthsAlone) {
  for (int64_t cp_size : {1, 2}) {
    const Batch batch = PackedBatch(8, {{2, 3}}, {{4, 4}});
    const std::vector<RankShard> want = ShardsOf(Thd({}), batch, cp_size);
    for (DType dtype : {DType::kU8, DType::kI8, DType::kI32, DType::kI64, DType::kF32}) {
      for (double id : {0.0, 1.0, 2.0, 7.0}) {
        for (const std::vector<RankShard>& shards :
             {ShardsOf(Thd({}, {.padding_token_id = 2}),
                       With(batch, Row("input_ids", Values(8, id), dtype)), cp_size),
              ShardsOf(Thd({}, {.padding_token_id = 2}),
                       With(With(batch, Row("input_ids", Values(8, id), dtype)),
                            Row("padding_mask", Values(8, 1), DType::kBool)),
                       cp_size)}) {
          for (int64_t rank = 0; rank < cp_size; ++rank) {
            EXPECT_EQ(IntsOf(shards[rank], "padding_mask"), IntsOf(want[rank], "padding_mask"));
          }
        }
      }
    }
  }
}

// B031: where there are only values to go by, one that is content too is refused.
TEST_F(MasksAndFill, WithoutLengthsAPaddingIdThatIsContentIsRefused) {
  const Batch batch = Without(PackedBatch(8, {{8}}, {}), "seq_lens");
  const Sharder sharder = Thd({}, {.padding_token_id = 0});
  ExpectRefused(sharder, With(batch, Row("input_ids", {0, 5, 0, 6, 7, 0, 0, 0})), 1,
                {"input_ids", "padding_token_id 0", "seq_lens"});
  ExpectFlatMask(ShardsOf(sharder, With(batch, Row("input_ids", {1, 5, 2, 6, 7, 0, 0, 0})), 1)[0],
                 {0, 0, 0, 0, 0, 1, 1, 1});
}

// B031: rows neither look at ids.
TEST_F(MasksAndFill, RowsAreNotSearchedForThePaddingId) {
  for (const NamedLayout& layout : AllRowLayouts(11)) {
    for (const RankShard& shard : ShardsOf(layout.sharder, RowBatch(7), 2)) {
      EXPECT_EQ(shard.batch.FindTensor("padding_mask"), nullptr) << layout.name;
    }
  }
}

// B033
TEST_F(MasksAndFill, ACausalMaskIsReadOnItsDiagonal) {
  Values causal, additive;
  for (int query = 0; query < 4; ++query) {
    for (int key = 0; key < 4; ++key) {
      causal.push_back(key <= query && query + key < 6);
      additive.push_back(query == 3 || key > query ? -65504 : 0);
    }
  }
  ExpectDerived(TensorOf("attention_mask", DType::kBool, {1, 1, 4, 4}, causal), {0, 0}, {0, 1});
  for (DType dtype : {DType::kF16, DType::kF32, DType::kF64}) {
    ExpectDerived(TensorOf("attention_mask", dtype, {1, 1, 4, 4}, additive), {0, 0}, {0, 1});
  }
}

// B033: more heads, more keys than queries, and the integers that have no agreed meaning (D6).
TEST_F(MasksAndFill, OnlyTheDiagonalOfTheFirstHeadCounts) {
  for (DType dtype : {DType::kBool, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const bool is_bool = dtype == DType::kBool;
    Values mask(2 * 4 * 6, is_bool ? 0 : -4);                   // nobody attends to anybody ...
    for (int i : {0, 1, 3}) mask[6 * i + i] = is_bool ? 1 : 0;  // ... but three to themselves
    const Tensor wide = TensorOf("attention_mask", dtype, {1, 2, 4, 6}, mask);
    const Batch batch = With(RowBatch(4), wide);
    const std::vector<RankShard> shards = ShardsOf(RowLayouts()[0].sharder, batch, 2);
    ExpectMask(shards[0], {0, 0});
    ExpectMask(shards[1], {1, 0});
  }
  for (DType dtype : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    const Batch batch =
        With(RowBatch(4), TensorOf("attention_mask", dtype, {1, 1, 4, 4}, Values(16, 1)));
    ExpectRefused(RowLayouts()[0].sharder, batch, 2,
                  {"attention_mask", std::string(DTypeName(dtype))});
  }
}

// B034
TEST_F(MasksAndFill, TrueInAPaddingMaskMeansPaddingAndOneInAnAttentionMaskMeansToken) {
  ExpectDerived(Row("attention_mask", {1, 1, 1, 1, 1, 0, 0}), {0, 0, 0, 0}, {0, 1, 1, 1});
  ExpectDerived(Row("attention_mask", {1, 1, 0, 0}, DType::kF32), {0, 0}, {1, 1});
  ExpectDerived(Row("attention_mask", {1, 1, 2, 0}), {0, 0}, {0, 1});

  Batch both = With(RowBatch(7), Row("attention_mask", Values(7, 0)));
  both = With(both, Row("padding_mask", {0, 0, 0, 0, 0, 0, 1}, DType::kBool));
  const std::vector<RankShard> shards = ShardsOf(RowLayouts()[0].sharder, both, 2);
  ExpectMask(shards[0], {0, 0, 0, 0});
  ExpectMask(shards[1], {0, 0, 1, 1});
}

// B034: in every dtype; whatever is not zero is a token.
TEST_F(MasksAndFill, AttentionMasksOfEveryDTypeHaveOnePolarity) {
  for (DType dtype : kAllDTypes) {
    ExpectDerived(Row("attention_mask", {1, 1, 1, 1, 1, 0, 0}, dtype), {0, 0, 0, 0}, {0, 1, 1, 1});
    ExpectDerived(Row("attention_mask", {0, 1, 0, 2}, dtype), {1, 0}, {1, 0});
    if (IsUnsigned(dtype)) continue;
    ExpectDerived(Row("attention_mask", {-1, 1, -7, 0}, dtype), {0, 0}, {0, 1});
  }
}

// B035
TEST_F(MasksAndFill, NoUncutAttentionMaskStaysBesideCutTokens) {
  const Batch batch = With(RowBatch(7), Row("attention_mask", {1, 1, 1, 1, 1, 0, 0}));
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), batch, 2);
  ExpectRow(shards[0], "input_ids", {11, 12, 17, 0});
  ExpectRow(shards[1], "input_ids", {13, 14, 15, 16});
  for (const RankShard& shard : shards) {
    std::vector<std::string> names;
    for (const Tensor& tensor : shard.batch.tensors) names.push_back(tensor.spec.name);
    EXPECT_THAT(names, testing::UnorderedElementsAre("input_ids", "labels", "position_ids"));
  }
}

// B035: every layout that cuts, every dtype and shape of a mask that the layout does not read.
TEST_F(MasksAndFill, EveryLayoutThatCutsTakesTheAttentionMaskOut) {
  for (DType dtype : kAllDTypes) {
    const std::vector<Tensor> masks = {
        Row("attention_mask", Values(8, 1), dtype),
        TensorOf("attention_mask", dtype, {1, 1, 8, 8}, Values(64, 1)),
        TensorOf("attention_mask", dtype, {3}, Values(3, 1))};
    for (const Tensor& mask : masks) {
      for (Primary primary : {Primary::kCut, Primary::kLeaveFull}) {
        for (const RankShard& shard :
             ShardsOf(RoundRobin({.primary = primary}), With(RowBatch(8), mask), 2)) {
          EXPECT_EQ(shard.batch.FindTensor("attention_mask"), nullptr);
          EXPECT_EQ(shard.batch.FindTensor("padding_mask"), nullptr);
        }
      }
      const Batch packed = With(PackedBatch(8, {{8}}, {}), mask);
      for (const RankShard& shard : ShardsOf(Thd({}), packed, 2)) {
        EXPECT_EQ(shard.batch.FindTensor("attention_mask"), nullptr);
      }
      // Nothing is cut: the mask is as long as the tokens.
      const RankShard whole = ShardsOf(Thd({}), packed, 1)[0];
      EXPECT_EQ(BytesOf(*whole.batch.FindTensor("attention_mask")), BytesOf(mask));
    }
  }
}

// B036
TEST_F(MasksAndFill, APaddingMaskIsCutWithTheTokensAndPaddedWithTrue) {
  const Batch batch{{RowsOf("input_ids", {{1, 2, 3}, {4, 5, 0}}),
                     RowsOf("labels", {{2, 3, -100}, {5, -100, -100}}),
                     RowsOf("padding_mask", {{0, 0, 0}, {0, 0, 1}}, DType::kBool)},
                    {}};
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), batch, 2);
  ExpectRows(shards[0], "padding_mask", {{0, 1}, {0, 1}}, DType::kBool);
  ExpectRows(shards[1], "padding_mask", {{0, 0}, {0, 1}}, DType::kBool);
  ExpectRows(shards[0], "labels", {{2, -100}, {5, -100}});
}

// B036: True is 1 in every integer dtype; only round robin fills floats with 0 (T8).
TEST_F(MasksAndFill, PaddingMasksOfEveryDTypeSayPaddingInThePadding) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (DType dtype : kAllDTypes) {
      for (int64_t cp_size : {2, 3, 4}) {
        SCOPED_TRACE(layout.name + " " + std::string(DTypeName(dtype)));
        const bool zero = IsFloating(dtype) && layout.name.starts_with("round_robin");
        const int64_t padded = cp_size == 3 ? 6 : 8;
        Values want(padded, zero ? 0 : 1);
        std::fill_n(want.begin(), 5, 0);
        const Batch batch = With(RowBatch(5), Row("padding_mask", Values(5, 0), dtype));
        const Tensor full = Gathered(ShardsOf(layout.sharder, batch, cp_size), "padding_mask");
        ExpectTensor(&full, dtype, {1, padded}, want);
      }
    }
  }
}

// B041
TEST_F(MasksAndFill, ALossMaskIsPaddedWithZeroAndCutAsTheLabelsAre) {
  const Tensor mask = Row("loss_mask", {1, 1, 1, 1, 1, 1, 0});
  const std::vector<NamedLayout> layouts = RowLayouts();
  const std::vector<RankShard> slices = ShardsOf(layouts[0].sharder, With(RowBatch(7), mask), 2);
  const std::vector<RankShard> halves = ShardsOf(layouts[1].sharder, With(RowBatch(7), mask), 2);
  ExpectRow(halves[0], "loss_mask", {1, 1, 0, 0});
  ExpectRow(halves[1], "loss_mask", {1, 1, 1, 1});
  ExpectRow(slices[0], "loss_mask", {1, 1, 1, 1});
  ExpectRow(slices[1], "loss_mask", {1, 1, 0, 0});

  const Batch unlabelled = Without(RowBatch(7), "labels");
  const std::vector<RankShard> promoted = ShardsOf(layouts[0].sharder, With(unlabelled, mask), 2);
  ExpectRow(promoted[1], "labels", {1, 1, 0, -100});
  EXPECT_EQ(promoted[1].batch.FindTensor("loss_mask"), nullptr);
  for (const NamedLayout& layout : AllRowLayouts()) {
    ExpectRefused(layout.sharder, unlabelled, 2, {"labels"});
  }
  ExpectRefused(layouts[1].sharder, With(unlabelled, mask), 2, {"labels", "loss_mask"});
}

// B041: in every dtype, rows of a batch apart, and refused where the layout has no use for it.
TEST_F(MasksAndFill, EveryRowOfALossMaskStaysBesideItsLabels) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (DType dtype : kAllDTypes) {
      for (int64_t cp_size : {2, 3}) {
        SCOPED_TRACE(layout.name + " " + std::string(DTypeName(dtype)));
        const Rows mask = {{1, 1, 1, 0, 1, 1, 0}, {0, 1, 0, 1, 0, 1, 1}};
        const Batch batch{
            {Tokens("input_ids", 2, 7), RowsOf("labels", mask), RowsOf("loss_mask", mask, dtype)},
            {}};
        for (const RankShard& shard : ShardsOf(layout.sharder, batch, cp_size)) {
          Values want;
          for (int64_t label : IntsOf(shard, "labels")) want.push_back(label == 1 ? 1 : 0);
          const Tensor* got = shard.batch.FindTensor("loss_mask");
          ASSERT_NE(got, nullptr);
          ExpectTensor(got, dtype, shard.batch.FindTensor("labels")->spec.dims, want);
        }
      }
    }
  }
  for (int64_t cp_size : {1, 2}) {
    ExpectRefused(Thd({}), With(PackedBatch(8, {{8}}, {}), Row("loss_mask", Values(8, 1))), cp_size,
                  {"loss_mask", "thd"});
  }
}

// B077
TEST_F(MasksAndFill, Minus100StaysMinus100InEverySignedDType) {
  for (const NamedLayout& layout : AllRowLayouts()) {
    for (DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
      SCOPED_TRACE(layout.name + " " + std::string(DTypeName(dtype)));
      const Batch batch =
          With(RowBatch(7), Row("labels", {12, -100, 14, 15, -100, 17, -100}, dtype));
      const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, 2);
      if (layout.name.starts_with("contiguous")) {
        ExpectRow(shards[0], "labels", {12, -100, 14, 15}, dtype);
        ExpectRow(shards[1], "labels", {-100, 17, -100, -100}, dtype);
      } else {
        ExpectRow(shards[0], "labels", {12, -100, -100, -100}, dtype);
        ExpectRow(shards[1], "labels", {14, 15, -100, 17}, dtype);
      }
    }
    for (DType dtype : {DType::kU8, DType::kBool}) {
      const Batch batch = With(RowBatch(7), Row("labels", Values(7, 1), dtype));
      ExpectRefused(layout.sharder, batch, 2, {"labels", "-100", std::string(DTypeName(dtype))});
    }
  }
}

// B077: floats get -100.0 from contiguous and 0.0 from round robin (T8).
TEST_F(MasksAndFill, FloatingLabelsArePaddedAsTheirLayoutPadsThem) {
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const Batch batch = With(RowBatch(7), Row("labels", {1, 2, 3, 4, 5, 6, -100}, dtype));
    for (const NamedLayout& layout : AllRowLayouts()) {
      const bool slices = layout.name.starts_with("contiguous");
      const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, 2);
      ExpectRow(shards[slices ? 1 : 0], "labels",
                slices ? Values{5, 6, -100, -100} : Values{1, 2, -100, 0}, dtype);
    }
  }
}

// B077: packed labels need no fill, so what they ignore is what was sent, as i64 to several ranks.
TEST_F(MasksAndFill, PackedLabelsKeepTheirSign) {
  for (DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    const Values labels = {12, -100, 14, 15, -100, 17, -100, -100};
    const Batch batch = With(PackedBatch(8, {{7}}, {{8}}), Row("labels", labels, dtype));
    ExpectFlat(ShardsOf(Thd({}), batch, 2)[0], "labels", {12, -100, -100, -100});
    ExpectFlat(ShardsOf(Thd({}), batch, 1)[0], "labels", labels, dtype);
  }
}

}  // namespace
}  // namespace cpshard
