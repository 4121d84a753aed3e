// What a batch holds, counted before the cut. Values by hand.
#include "core/plan/totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Names = std::vector<std::string>;

constexpr int64_t kNone = -100;  // as the contract states it
const SharedOptions kPadId{.padding_token_id = 0};

// Rows of these labels, i64 [B, S].
PackedBatch Labelled(const PackedBatch::Rows& labels) {
  const int64_t rows = static_cast<int64_t>(labels.size());
  const int64_t columns = static_cast<int64_t>(labels.front().size());
  std::vector<int64_t> flat;
  for (const auto& row : labels) flat.insert(flat.end(), row.begin(), row.end());
  PackedBatch batch(rows, columns);
  batch.Set({"labels", DType::kI64, {rows, columns}}, flat);
  return batch;
}

// One row, of which every token is supervised.
PackedBatch Supervised(int64_t columns) { return Labelled({std::vector<int64_t>(columns, 5)}); }

// With the values of these streams at hand.
Totals Counted(const Sharder& sharder, const PackedBatch& batch,
               const Names& at_hand = {"labels"}) {
  const absl::StatusOr<ShardPlan> plan = batch.PlanBy(sharder);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  const PlanValues values = batch.Values(at_hand);
  return TotalsOf(*plan, DocumentsOf(*plan, batch.spec(), values), batch.spec(), values);
}

TokenCounts Of(int64_t real, int64_t pad, std::optional<int64_t> supervised) {
  return {real, pad, supervised};
}

// The row of cases B051, B052.
PackedBatch SevenTokens() { return Labelled({{12, 13, 14, 15, 16, 17, kNone}}); }

TEST(Totals, OfARankAreThoseOfItsSlots) {
  const Totals totals = Counted(RoundRobin({}), SevenTokens());
  EXPECT_EQ(totals.batch, Of(7, 1, 6));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(3, 1, 2), Of(4, 0, 4)));  // 0 1 6 . | 2 3 4 5
}

TEST(Totals, AreTheSameForEveryGroup) {
  for (const int64_t cp_size : {1, 2, 3, 4, 8, 64}) {
    const Totals totals = Counted(RoundRobin({}), SevenTokens().Cp(cp_size));
    EXPECT_EQ(totals.num_label_tokens, 6) << cp_size;
    EXPECT_EQ(totals.num_tokens_excl_tail_pad, 6) << cp_size;
    EXPECT_EQ(totals.batch.supervised, 6) << cp_size;
    EXPECT_EQ(totals.batch.real, 7) << cp_size;
  }
}

TEST(Totals, LeaveOutTheTrailingRunOfEachRowAlone) {
  const Totals totals =
      Counted(Contiguous({}, kPadId), Labelled({{5, kNone, 6, kNone, kNone},
                                                {kNone, kNone, kNone, kNone, kNone},
                                                {kNone, kNone, kNone, kNone, 7}}));
  EXPECT_EQ(totals.num_label_tokens, 3);
  EXPECT_EQ(totals.num_tokens_excl_tail_pad, 3 + 0 + 5);
}

TEST(Totals, NameTheRanksWithoutASupervisedToken) {
  const Totals totals =
      Counted(Contiguous({}), Labelled({{kNone, kNone, kNone, kNone, kNone, kNone, 17, 18}}).Cp(4));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(2, 0, 0), Of(2, 0, 0), Of(2, 0, 0), Of(2, 0, 2)));
  EXPECT_THAT(totals.unsupervised_ranks(), ElementsAre(0, 1, 2));
}

TEST(Totals, DoNotNameARankThatHoldsNothing) {
  const Totals totals = Counted(Explicit({{{0, 4}}, {}}), Supervised(4));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(4, 0, 4), Of(0, 0, 0)));
  EXPECT_THAT(totals.unsupervised_ranks(), IsEmpty());
}

TEST(Totals, OfUnevenRanksAreTheirOwn) {
  const Totals totals =
      Counted(Explicit({{{0, 1}, {4, 2}}, {{1, 3}}}, kPadId), Labelled({{1, 2, kNone, 4, 5}}));
  EXPECT_EQ(totals.batch, Of(5, 1, 4));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(2, 1, 2), Of(3, 0, 2)));
}

TEST(Totals, OfAPrimaryThatIsLeftWholeAreThoseOfTheOthers) {
  const Totals cut = Counted(RoundRobin({}), SevenTokens());
  const Totals left = Counted(RoundRobin({Primary::kLeaveFull}), SevenTokens());
  EXPECT_EQ(left.batch, cut.batch);
  EXPECT_EQ(left.ranks, cut.ranks);
}

TEST(Totals, OfEmbeddingsAreThoseOfTheirTokens) {
  PackedBatch batch = SevenTokens();
  batch.Remove("input_ids").Set({"inputs_embeds", DType::kBF16, {1, 7, 16}});
  EXPECT_EQ(Counted(RoundRobin({}), batch).batch, Of(7, 1, 6));
}

// --- numbers that are not there ------------------------------------------------------------------

TEST(Totals, OfLabelsThatAreNotAtHandAreAbsent) {
  const Totals totals = Counted(RoundRobin({}), SevenTokens(), {});
  EXPECT_EQ(totals.num_label_tokens, std::nullopt);
  EXPECT_EQ(totals.num_tokens_excl_tail_pad, std::nullopt);
  EXPECT_EQ(totals.batch, Of(7, 1, std::nullopt));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(3, 1, std::nullopt), Of(4, 0, std::nullopt)));
  EXPECT_THAT(totals.unsupervised_ranks(), IsEmpty());
}

TEST(Totals, OfLabelsOfAnotherKindAreAbsent) {
  for (const TensorSpec& labels :
       {TensorSpec{"labels", DType::kF64, {1, 7}}, TensorSpec{"labels", DType::kI64, {1, 7, 1}},
        TensorSpec{"labels", DType::kI64, {1, 6}}, TensorSpec{"labels", DType::kI64, {1}}}) {
    PackedBatch batch(1, 7);
    batch.Set(labels, std::vector<int64_t>(Product(labels.dims), 5));
    const Totals totals = Counted(Identity(), batch);
    EXPECT_EQ(totals.num_label_tokens, std::nullopt) << DimsString(labels.dims);
    EXPECT_EQ(totals.num_tokens_excl_tail_pad, std::nullopt) << DimsString(labels.dims);
    EXPECT_EQ(totals.batch, Of(7, 0, std::nullopt)) << DimsString(labels.dims);
  }
}

TEST(Totals, OfALossMaskThatStandsInForLabelsAreAbsent) {
  PackedBatch batch = SevenTokens();
  batch.Remove("labels").Set({"loss_mask", DType::kI64, {1, 7}}, std::vector<int64_t>(7, 1));
  EXPECT_EQ(Counted(Contiguous({}, kPadId), batch, {"loss_mask"}).batch, Of(7, 1, std::nullopt));
}

TEST(Totals, WithoutALayoutAreThoseOfTheLabelsAlone) {
  const Totals totals = Counted(DeepseekV4({}), SevenTokens().Cp(1));
  EXPECT_EQ(totals.num_label_tokens, 6);
  EXPECT_EQ(totals.num_tokens_excl_tail_pad, 6);
  EXPECT_THAT(totals.ranks, IsEmpty());
  EXPECT_EQ(totals.batch, TokenCounts());
}

TEST(Totals, WhereEveryRankHoldsAllAreThoseOfTheBatchForEach) {
  const Totals totals = Counted(Identity(), SevenTokens().Cp(3));
  EXPECT_EQ(totals.batch, Of(7, 0, 6));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(7, 0, 6), Of(7, 0, 6), Of(7, 0, 6)));
}

// However many rows have none: they are not gone through.
TEST(Totals, OfNoTokensAreZero) {
  using Shape = std::pair<int64_t, int64_t>;
  for (const auto& [rows, columns] : {Shape{0, 4}, Shape{2, 0}, Shape{int64_t{1} << 40, 0}}) {
    PackedBatch batch(rows, columns);
    batch.Set({"labels", DType::kI64, {rows, columns}});
    const Totals totals = Counted(Contiguous({}), batch);
    EXPECT_EQ(totals.batch, Of(0, 0, 0));
    EXPECT_EQ(totals.num_label_tokens, 0);
    EXPECT_EQ(totals.num_tokens_excl_tail_pad, 0);
    EXPECT_THAT(totals.unsupervised_ranks(), IsEmpty());
  }
}

// --- padding -------------------------------------------------------------------------------------

TEST(Totals, CountWhatAMaskCallsPaddingAndItsLabelsAllTheSame) {
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI32, DType::kI64}) {
    PackedBatch batch = Supervised(8);
    batch.Set({"padding_mask", dtype, {1, 8}}, {1, 0, 0, 0, 0, 0, 1, 1});
    const Totals totals = Counted(Contiguous({}), batch, {"labels", "padding_mask"});
    EXPECT_EQ(totals.batch, Of(5, 3, 8));
    EXPECT_THAT(totals.ranks, ElementsAre(Of(3, 1, 4), Of(2, 2, 4)));
  }
}

TEST(Totals, TakeWhatAnAttentionMaskLeavesOutForPaddingWhetherTheLayoutReadsItOrNot) {
  PackedBatch batch = Supervised(8);
  batch.Set({"attention_mask", DType::kI64, {1, 8}}, {0, 1, 1, 1, 1, 1, 0, 0});
  for (const Sharder& sharder : {Contiguous({}), RoundRobin({}), Identity()}) {
    EXPECT_EQ(Counted(sharder, batch, {"labels", "attention_mask"}).batch, Of(5, 3, 8));
  }
}

TEST(Totals, BelieveThePaddingMaskBeforeTheAttentionMask) {
  PackedBatch batch = Supervised(4);
  batch.Set({"attention_mask", DType::kI64, {1, 4}}, {0, 0, 0, 1});
  batch.Set({"padding_mask", DType::kBool, {1, 4}}, {0, 0, 0, 1});
  for (const Sharder& sharder : {Contiguous({}), RoundRobin({}), Identity()}) {
    EXPECT_EQ(Counted(sharder, batch, {"labels", "attention_mask", "padding_mask"}).batch,
              Of(3, 1, 4));
  }
}

// Block-diagonal overwrites a padding_mask that came in (contract 4.13).
TEST(Totals, BelieveTheMaskThatTheRanksAreGiven) {
  PackedBatch batch = Supervised(4);
  batch.Set({"attention_mask", DType::kI64, {1, 4}}, {1, 1, 2, 0});
  batch.Set({"padding_mask", DType::kBool, {1, 4}}, {1, 1, 1, 1});
  EXPECT_EQ(
      Counted(BlockDiagonal(Primary::kCut), batch, {"labels", "attention_mask", "padding_mask"})
          .batch,
      Of(3, 1, 4));
}

// [2, 2, 4, 5] with these on the main diagonals of head 0, and what would count otherwise
// elsewhere.
std::vector<int64_t> FourAxes(const PackedBatch::Rows& diagonals, int64_t elsewhere) {
  std::vector<int64_t> mask(2 * 2 * 4 * 5, elsewhere);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < 4; ++i) mask[row * 2 * 4 * 5 + i * 5 + i] = diagonals[row][i];
  }
  return mask;
}

// Contract 2.5: a bool mask says which tokens attend, an additive one what is added to the others.
TEST(Totals, GoByTheDiagonalOfAMaskOfFourAxes) {
  const PackedBatch::Rows attends = {{1, 1, 1, 0}, {1, 0, 0, 0}};
  const PackedBatch::Rows added = {{0, 0, 0, -8}, {0, -8, -8, -8}};
  for (const DType dtype : {DType::kBool, DType::kF32}) {
    const bool is_bool = dtype == DType::kBool;
    std::vector<int64_t> mask = is_bool ? FourAxes(attends, 0) : FourAxes(added, -8);
    for (int64_t& value : mask) {
      if (!is_bool) value = static_cast<int64_t>(std::bit_cast<uint32_t>(float(value)));
    }
    PackedBatch batch = Labelled({{5, 5, 5, 5}, {5, 5, 5, 5}});
    batch.Set({"attention_mask", dtype, {2, 2, 4, 5}}, mask);
    EXPECT_THAT(TotalsNeeds(batch.spec()), ElementsAre("labels", "attention_mask"));
    for (const Sharder& sharder : {Contiguous({}), RoundRobin({}), Identity()}) {
      EXPECT_EQ(Counted(sharder, batch, {"labels", "attention_mask"}).batch, Of(4, 4, 8));
    }
    const Totals totals = Counted(Contiguous({}), batch, {"labels", "attention_mask"});
    EXPECT_THAT(totals.ranks, ElementsAre(Of(3, 1, 4), Of(1, 3, 4)));
  }
}

TEST(Totals, DoNotGuessWhatIntegersOfFourAxesMean) {
  PackedBatch batch = Labelled({{5, 5, 5, 5}, {5, 5, 5, 5}});
  batch.Set({"attention_mask", DType::kI64, {2, 2, 4, 5}},
            FourAxes({{1, 1, 1, 0}, {1, 0, 0, 0}}, 0));
  EXPECT_EQ(Counted(Identity(), batch, {"labels", "attention_mask"}).batch, Of(8, 0, 8));
}

TEST(Totals, DoNotReadAMaskOfAnotherShape) {
  PackedBatch batch = Supervised(4);
  batch.Set({"attention_mask", DType::kI64, {1, 5}}, {0, 0, 0, 0, 0});
  EXPECT_EQ(Counted(RoundRobin({}), batch, {"labels", "attention_mask"}).batch, Of(4, 0, 4));
}

// --- documents -----------------------------------------------------------------------------------

TEST(Totals, OfDocumentsCountTheirPadding) {
  PackedBatch batch = Labelled({{5, 5, 5, kNone, kNone, kNone, kNone, kNone,  //
                                 5, 5, 5, 5, kNone, kNone, kNone, kNone}});
  batch.Real({{3, 5}}).Padded({{8, 8}});
  const Totals totals = Counted(Thd({}), batch);
  EXPECT_EQ(totals.batch, Of(8, 8, 7));
  // 0 1 6 7, 8 9 14 15 | 2 ... 5, 10 ... 13
  EXPECT_THAT(totals.ranks, ElementsAre(Of(4, 4, 4), Of(4, 4, 3)));
  EXPECT_THAT(totals.documents, ElementsAre(DocumentCounts{0, 0, {0, 3, 8}, Of(3, 5, 3)},
                                            DocumentCounts{0, 0, {8, 5, 8}, Of(5, 3, 4)}));
}

TEST(Totals, OfDocumentsInChunksAreThoseOfTheirChunk) {
  PackedBatch batch = Labelled({{5, 5, kNone, kNone}, {kNone, 5, 5, 5}});
  batch.Real({{2}, {4}}).Padded({{4}, {4}});
  const Totals totals = Counted(Thd({.num_chunks = 2}), batch);
  EXPECT_EQ(totals.num_tokens_excl_tail_pad, 2 + 4);
  EXPECT_EQ(totals.batch.supervised, 5);
  ASSERT_EQ(totals.documents.size(), 2u);
  EXPECT_EQ(totals.documents[1], (DocumentCounts{1, 0, {0, 4, 4}, Of(4, 0, 3)}));
  EXPECT_THAT(totals.ranks, ElementsAre(testing::Field(&TokenCounts::supervised, 1 + 1),
                                        testing::Field(&TokenCounts::supervised, 1 + 2)));
}

// For answers that have no place for each of them.
TEST(Totals, OfTheBatchAloneSayHowManyDocumentsThereAreAndListNone) {
  PackedBatch batch = Labelled({{5, 5, kNone, kNone}, {kNone, 5, 5, 5}});
  batch.Real({{2}, {4}}).Padded({{4}, {4}});
  const ShardPlan plan = *batch.PlanBy(Thd({.num_chunks = 2}));
  const PlanValues values = batch.Values({"labels"});
  const Documents documents = DocumentsOf(plan, batch.spec(), values);
  const Totals each = TotalsOf(plan, documents, batch.spec(), values);
  const Totals alone = TotalsOf(plan, documents, batch.spec(), values, Detail::kBatch);
  EXPECT_EQ(alone.num_documents, 2);
  EXPECT_EQ(each.num_documents, 2);
  EXPECT_THAT(alone.documents, IsEmpty());
  EXPECT_EQ(alone.batch, each.batch);
  EXPECT_EQ(alone.ranks, each.ranks);
}

// One list stands for rows that are alike; their documents are counted all the same.
TEST(Totals, CountTheDocumentsOfRowsThatAreAlikeOncePerRow) {
  PackedBatch batch = Labelled({{5, 5, 5, 5}, {5, 5, 5, 5}, {5, 5, 5, 5}});
  batch.Set({"position_ids", DType::kI64, {3, 4}}, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  const Totals totals = Counted(Contiguous({}), batch, {"labels", "position_ids"});
  EXPECT_EQ(totals.num_documents, 3 * 2);
  EXPECT_EQ(totals.documents.size(), 6u);
}

// Rows that are one stream still have a tail each.
TEST(Totals, OfAFlatStreamKnowTheRowsThatItWas) {
  PackedBatch batch = Labelled({{5, kNone, kNone, kNone}, {5, 5, kNone, kNone}});
  batch.Real({{4}, {4}});
  EXPECT_EQ(Counted(Thd({}), batch).num_tokens_excl_tail_pad, 1 + 2);
}

TEST(Totals, OfTokensThatTheLayoutDropsAreInTheNumbersOfTheLabelsAlone) {
  PackedBatch batch = Supervised(8);
  batch.Real({{3, 2}}).Padded({{4, 4}});
  const Totals totals = Counted(DeepseekV4({.pad_multiple = 2}, kPadId), batch);
  EXPECT_EQ(totals.num_label_tokens, 8);
  EXPECT_EQ(totals.batch, Of(5, 3, 5));  // 0 1 2 . 4 5 . .
  EXPECT_THAT(totals.ranks, ElementsAre(Of(3, 1, 3), Of(2, 2, 2)));
  EXPECT_THAT(totals.documents, ElementsAre(DocumentCounts{0, 0, {0, 3, 4}, Of(3, 1, 3)},
                                            DocumentCounts{0, 0, {4, 2, 2}, Of(2, 0, 2)}));
}

TEST(Totals, OfRowsThatAreEachLaidOutInTheirOwnWay) {
  PackedBatch batch = Labelled({{5, 5, 5, 5}, {kNone, 5, kNone, kNone}});
  batch.Real({{4}, {2}});
  const Totals totals = Counted(DeepseekV4({.pad_multiple = 2}, kPadId), batch);
  EXPECT_EQ(totals.batch, Of(6, 2, 5));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(4, 0, 3), Of(2, 2, 2)));  // 0 1 | 2 3, 0 1 | . .
  EXPECT_THAT(totals.documents, ElementsAre(DocumentCounts{0, 0, {0, 4, 4}, Of(4, 0, 4)},
                                            DocumentCounts{0, 1, {0, 2, 2}, Of(2, 0, 1)}));
}

TEST(Totals, CountColumnsBehindTheLastDocumentAsPadding) {
  PackedBatch batch = Supervised(8);
  batch.Set({"_packed_seq_ids", DType::kI64, {1, 8}}, {0, 1, 1, 2, 2, 2, 0, 0});
  const Totals totals = Counted(Gemma4(), batch, {"labels", "_packed_seq_ids"});
  EXPECT_EQ(totals.batch, Of(5, 3, 8));
  EXPECT_THAT(totals.documents, ElementsAre(DocumentCounts{0, 0, {1, 2, 2}, Of(2, 0, 2)},
                                            DocumentCounts{0, 0, {3, 3, 3}, Of(3, 0, 3)}));
}

// Boundaries that hold nothing between them, for two rows of four.
TEST(Totals, OfRowsWithoutADocumentAreAllPadding) {
  PackedBatch batch = Labelled({{5, 5, kNone, 5}, {5, 5, 5, 5}});
  batch.Set({"cu_seqlens", DType::kI64, {2}}, {0, 0});
  const Totals totals = Counted(Glm5Next(Primary::kLeaveFull), batch);
  EXPECT_EQ(totals.batch, Of(0, 8, 7));
  EXPECT_THAT(totals.ranks, ElementsAre(Of(0, 4, 4), Of(0, 4, 3)));
  EXPECT_THAT(totals.documents, IsEmpty());
}

TEST(Totals, OfDocumentsThatPositionsTellAreCountedToo) {
  PackedBatch batch = SevenTokens();
  batch.Set({"position_ids", DType::kI64, {1, 7}}, {0, 1, 2, 0, 1, 2, 3});
  const Totals totals = Counted(RoundRobin({}), batch, {"labels", "position_ids"});
  EXPECT_THAT(totals.documents, ElementsAre(DocumentCounts{0, 0, {0, 3, 3}, Of(3, 0, 3)},
                                            DocumentCounts{0, 0, {3, 4, 4}, Of(4, 0, 3)}));
}

TEST(Totals, WhereNothingTellsDocumentsListNone) {
  EXPECT_THAT(Counted(RoundRobin({}), SevenTokens()).documents, IsEmpty());
}

TEST(Totals, GoByLengthsWhereTheLayoutDoesAndNotByAMaskThatItReplaces) {
  PackedBatch batch = Supervised(8);
  batch.Real({{3, 4}}).Padded({{4, 4}});
  batch.Set({"padding_mask", DType::kBool, {1, 8}}, std::vector<int64_t>(8, 1));
  const Names at_hand = {"labels", "padding_mask"};
  EXPECT_EQ(Counted(Thd({}), batch, at_hand).batch, Of(7, 1, 8));
  EXPECT_EQ(Counted(DeepseekV41({}, kPadId), batch, at_hand).batch.real, 7);
  batch.SetScalar("qkv_format", std::string("thd"));
  const Sharder magi = Magi({.variant = MagiVariant::kCustom, .chunk_size = 4});
  EXPECT_EQ(Counted(magi, batch, at_hand).batch.real, 7);
}

// The tokens that the pad id tells (contract 5.4).
TEST(Totals, WithoutLengthsOfAFlatStreamGoByItsPadId) {
  PackedBatch batch = Supervised(6);
  batch.Cp(1).Set({"input_ids", DType::kI64, {1, 6}}, {4, 5, 6, 7, 9, 9});
  EXPECT_EQ(Counted(Thd({}, {.padding_token_id = 9}), batch).batch, Of(4, 2, 6));
}

// --- what is read --------------------------------------------------------------------------------

TEST(Totals, NeedLabelsAndMasksOfRows) {
  PackedBatch batch(2, 4);
  batch.Set({"padding_mask", DType::kF32, {2, 4}}).Set({"attention_mask", DType::kI64, {2, 4}});
  EXPECT_THAT(TotalsNeeds(batch.spec()), ElementsAre("labels", "padding_mask", "attention_mask"));
}

TEST(Totals, DoNotNeedWhatTheyCannotRead) {
  PackedBatch batch(2, 4);
  batch.Set({"labels", DType::kF32, {2, 4}}).Set({"attention_mask", DType::kBool, {2, 4, 4}});
  batch.SetScalar("padding_mask", int64_t{1});
  EXPECT_THAT(TotalsNeeds(batch.spec()), IsEmpty());
}

}  // namespace
}  // namespace cpshard
