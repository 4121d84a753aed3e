// Balance of plans. Values are worked out by hand, or those that design and solver publish.
#include "core/plan/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Lengths = std::vector<int64_t>;

// One row, its positions 0 ... L - 1 for each of the documents.
PackedBatch RowOf(const Lengths& documents, int64_t cp_size) {
  Lengths positions;
  for (const int64_t length : documents) {
    for (int64_t i = 0; i < length; ++i) positions.push_back(i);
  }
  const auto columns = static_cast<int64_t>(positions.size());
  PackedBatch batch(1, columns);
  batch.Set({"position_ids", DType::kI64, {1, columns}}, std::move(positions)).Cp(cp_size);
  return batch;
}

// The same, with the lengths sent, each padded to a multiple of `multiple`.
PackedBatch PackedRow(const Lengths& documents, int64_t cp_size, int64_t multiple = 1) {
  Lengths padded;
  for (const int64_t length : documents) {
    padded.push_back((length + multiple - 1) / multiple * multiple);
  }
  PackedBatch batch = RowOf(padded, cp_size);
  batch.Real({documents}).Padded({padded});
  return batch;
}

Balance BalanceOf(const PackedBatch& batch, const Sharder& sharder) {
  const absl::StatusOr<ShardPlan> plan = batch.PlanBy(sharder);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  const PlanValues values = batch.Values(DocumentsNeeds(batch.spec()));
  return BalanceOf(*plan, DocumentsOf(*plan, batch.spec(), values));
}

double CausalImbalance(const PackedBatch& batch, const Sharder& sharder) {
  const Balance balance = BalanceOf(batch, sharder);
  EXPECT_TRUE(balance.causal_documents.has_value());
  return balance.causal_documents.value_or(AttentionArea()).imbalance();
}

// The documents D and E of the design, in packed rows of 4096 and 3600 columns.
const Lengths& kD = *new Lengths{1536, 512, 1024, 700, 324};
const Lengths& kE = *new Lengths{2000, 900, 600, 100};

// --- areas ---------------------------------------------------------------------------------------

// Columns 0 1 | 2 3 of a row of four: 1 + 2 and 3 + 4 keys, or four each.
TEST(AttentionArea, CountsTheKeysOfEveryQuery) {
  const Balance balance = BalanceOf(RowOf({4}, 2), Contiguous({}));
  EXPECT_THAT(balance.causal_rows.ranks, ElementsAre(3, 7));
  EXPECT_THAT(balance.full_rows.ranks, ElementsAre(8, 8));
  EXPECT_EQ(balance.causal_rows.scheduled, 10);
  EXPECT_EQ(balance.full_rows.scheduled, 16);
  EXPECT_DOUBLE_EQ(balance.causal_rows.imbalance(), 1.4);
  EXPECT_DOUBLE_EQ(balance.full_rows.imbalance(), 1);
}

// Documents of 3 and 5: rank 0 holds all of the first and a column of the second.
TEST(AttentionArea, BeginsAnewWithEveryDocument) {
  const Balance balance = BalanceOf(RowOf({3, 5}, 2), Contiguous({}));
  ASSERT_TRUE(balance.causal_documents && balance.full_documents);
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(1 + 2 + 3 + 1, 2 + 3 + 4 + 5));
  EXPECT_THAT(balance.full_documents->ranks, ElementsAre(3 * 3 + 5, 4 * 5));
  EXPECT_THAT(balance.causal_rows.ranks, ElementsAre(10, 26));
  EXPECT_EQ(balance.causal_documents->useful, 6 + 15);
  EXPECT_EQ(balance.full_documents->useful, 9 + 25);
}

// Ranks hold columns 0 3 and 1 2 of documents of 2 and 2.
TEST(AttentionArea, IsThatOfEveryRunOfTheRank) {
  const Balance balance = BalanceOf(RowOf({2, 2}, 2), RoundRobin({}));
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(1 + 2, 2 + 1));
  EXPECT_THAT(balance.causal_rows.ranks, ElementsAre(1 + 4, 2 + 3));
}

// A document of three tokens on four columns, for one rank: the fourth query works, for nothing.
TEST(AttentionArea, HoldsThePaddingOfADocumentAndIsOfUseWithoutIt) {
  PackedBatch batch = PackedRow({3, 2}, 1, 4);
  const Balance balance = BalanceOf(batch, GlmDsa({}));
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(10 + 10));
  EXPECT_EQ(balance.causal_documents->useful, 6 + 3);
  EXPECT_THAT(balance.full_documents->ranks, ElementsAre(16 + 16));
  EXPECT_EQ(balance.full_documents->useful, 9 + 4);
}

// Six columns of 2 documents and two fill columns, which no document works through.
TEST(AttentionArea, OfPaddingThatIsOfNoDocumentIsNone) {
  const Balance balance = BalanceOf(RowOf({4, 2}, 2), RoundRobin({}));  // 0 1 6 7 and 2 3 4 5
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(1 + 2, 3 + 4 + 1 + 2));
  EXPECT_EQ(balance.causal_documents->scheduled, balance.causal_documents->useful);
  EXPECT_THAT(balance.causal_rows.ranks, ElementsAre(1 + 2 + 7 + 8, 3 + 4 + 5 + 6));
  EXPECT_EQ(balance.causal_rows.useful, 21);
}

TEST(AttentionArea, OfRowsIsThatOfAllOfThem) {
  PackedBatch batch(2, 4);
  batch.Set({"position_ids", DType::kI64, {2, 4}}, {0, 1, 2, 3, 0, 0, 1, 2});
  const Balance balance = BalanceOf(batch, Contiguous({}));
  EXPECT_THAT(balance.causal_rows.ranks, ElementsAre(2 * 3, 2 * 7));
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(3 + 1 + 1, 7 + 2 + 3));
  EXPECT_EQ(balance.causal_documents->useful, 10 + 1 + 6);
}

TEST(AttentionArea, OfChunksIsThatOfAllOfThem) {
  PackedBatch batch(2, 4);
  batch.Set({"position_ids", DType::kI64, {2, 4}}, Lengths(8)).Real({{4}, {4}});
  const Balance balance = BalanceOf(batch, Thd({2}));
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(2 * 5, 2 * 5));
  EXPECT_THAT(balance.slots, ElementsAre(4, 4));
}

TEST(AttentionArea, WhereEveryRankHoldsAllColumnsIsAllOfItOnEach) {
  const Balance balance = BalanceOf(RowOf({3, 5}, 3), Identity());
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(21, 21, 21));
  EXPECT_EQ(balance.causal_documents->scheduled, 63);
  EXPECT_EQ(balance.causal_documents->useful, 63);
  EXPECT_DOUBLE_EQ(balance.causal_documents->imbalance(), 1);
}

TEST(AttentionArea, OfOneMaskAloneIsTheSame) {
  const PackedBatch batch = RowOf({3, 5}, 2);
  const ShardPlan plan = batch.PlanBy(Contiguous({})).value();
  const Documents documents = DocumentsOf(plan, batch.spec(), batch.Values({"position_ids"}));
  EXPECT_THAT(AreaOf(plan, documents, AttentionMask::kCausal).ranks, ElementsAre(7, 14));
  EXPECT_THAT(AreaOf(plan, documents, AttentionMask::kFull).ranks, ElementsAre(14, 20));
}

TEST(AttentionArea, OfNothingIsEven) {
  EXPECT_EQ(AttentionArea().imbalance(), 1);
  PackedBatch batch(3, 0);
  batch.Remove("position_ids");
  const Balance balance = BalanceOf(batch, Contiguous({}));
  EXPECT_EQ(balance.causal_rows.imbalance(), 1);
  EXPECT_EQ(balance.slot_imbalance, 1);
  EXPECT_EQ(balance.pad_fraction(), 0);
  EXPECT_THAT(balance.only_pads, IsEmpty());
}

// The cost is that of runs: columns this many could not be visited.
TEST(AttentionArea, IsWorkedOutWithoutVisitingColumns) {
  constexpr int64_t kHalf = int64_t{1} << 40;
  LayoutPlan layout{.rows = 1, .source_len = 2 * kHalf, .padded_len = 2 * kHalf};
  layout.placement = {IndexMap::Identity(2 * kHalf)};
  layout.partition.resize(2);
  layout.partition[0].Append({0, kHalf});
  layout.partition[1].Append({kHalf, kHalf});
  ShardPlan plan;
  plan.cp_size = 2;
  plan.chunks = {layout};
  const AttentionArea area = AreaOf(plan, WholeRows(plan), AttentionMask::kCausal);
  const double half = static_cast<double>(kHalf);
  EXPECT_THAT(area.ranks,
              ElementsAre(DoubleEq(half * (half + 1) / 2), DoubleEq(half * (3 * half + 1) / 2)));
}

// --- what the design says of layouts (its sections 3.6 and 6) ------------------------------------

// ((2 W - 1) L + 1) / (W L + 1) for slices of L columns: 2 - 1 / W as rows grow.
TEST(OneCausalDocument, IsNearlyTwiceTheMeanOnTheLastRankOfContiguous) {
  constexpr int64_t kSlice = 1024;
  for (const int64_t cp_size : {2, 4, 8, 16}) {
    const double got = CausalImbalance(RowOf({kSlice * cp_size}, cp_size), Contiguous({}));
    const double ranks = static_cast<double>(cp_size);
    EXPECT_DOUBLE_EQ(got, ((2 * ranks - 1) * kSlice + 1) / (ranks * kSlice + 1));
    EXPECT_NEAR(got, 2 - 1 / ranks, 0.001);
  }
}

TEST(OneCausalDocument, IsPerfectlyEvenUnderRoundRobin) {
  for (const int64_t cp_size : {2, 4, 8, 16}) {
    EXPECT_EQ(CausalImbalance(RowOf({2 * cp_size * 37}, cp_size), RoundRobin({})), 1);
  }
}

TEST(PackedDocuments, AreAsUnevenAsTheDesignSaysUnderContiguous) {
  EXPECT_NEAR(CausalImbalance(RowOf(kD, 4), Contiguous({})), 1.4747, 5e-5);
  EXPECT_NEAR(CausalImbalance(RowOf(kE, 4), Contiguous({})), 1.876, 5e-4);
}

TEST(PackedDocuments, AreAsUnevenAsTheDesignSaysUnderRoundRobin) {
  EXPECT_NEAR(CausalImbalance(RowOf(kD, 4), RoundRobin({})), 1.9659, 5e-5);
  EXPECT_NEAR(CausalImbalance(RowOf(kE, 4), RoundRobin({})), 1.729, 5e-4);
}

TEST(PackedDocuments, ArePerfectlyEvenUnderThd) {
  const Balance balance = BalanceOf(PackedRow(kD, 4, 8), Thd({}));
  EXPECT_EQ(balance.causal_documents->imbalance(), 1);
  EXPECT_EQ(balance.pad_columns, 8);
  EXPECT_EQ(balance.padded_columns, 4104);
  EXPECT_EQ(CausalImbalance(PackedRow(kE, 4, 8), Thd({})), 1);
}

TEST(PackedDocuments, AreNearlyEvenWithoutPaddingUnderDocumentHeadTail) {
  const Balance balance = BalanceOf(PackedRow(kD, 4), DocumentHeadTail());
  EXPECT_NEAR(balance.causal_documents->imbalance(), 1.0003, 5e-5);
  EXPECT_EQ(balance.pad_columns, 0);
}

// The published example of WLB-LLM, of 5, 7 and 4 tokens.
TEST(PackedDocuments, OfThePublishedExampleHaveThePublishedAreas) {
  const Balance balance = BalanceOf(PackedRow({5, 7, 4}, 2), DocumentHeadTail());
  EXPECT_THAT(balance.causal_documents->ranks, ElementsAre(27, 26));
  EXPECT_NEAR(balance.causal_documents->imbalance(), 1.019, 5e-4);
}

// The loads that MagiAttention's solver has for the chunks that it deals out.
TEST(PackedDocuments, HaveTheLoadsOfTheSolverUnderMagi) {
  const auto ranks = [](const Lengths& documents, MagiOptions options) {
    options.variant = MagiVariant::kCustom;
    PackedBatch batch = PackedRow(documents, 4);
    batch.SetScalar("qkv_format", std::string("thd"));
    return BalanceOf(batch, Magi(options)).causal_documents->ranks;
  };
  EXPECT_THAT(ranks(kD, {.chunk_size = 512, .min_chunks_per_rank = 1}),
              ElementsAre(786944, 524800, 524800, 298000));
  EXPECT_THAT(ranks(kD, {}), ElementsAre(526352, 541184, 533504, 533504));
  EXPECT_THAT(ranks(kE, {.chunk_size = 512, .min_chunks_per_rank = 1}),
              ElementsAre(823240, 786944, 549376, 432240));
  EXPECT_THAT(ranks(kE, {}), ElementsAre(646699, 649080, 646725, 649296));
}

// --- slots and padding ---------------------------------------------------------------------------

// Four tokens for four ranks are padded to eight: ranks 2 and 3 hold nothing else.
TEST(Balance, NamesTheRanksThatHoldPaddingAlone) {
  const Balance balance = BalanceOf(RowOf({4}, 4), Contiguous({}, {.padding_token_id = 0}));
  EXPECT_THAT(balance.only_pads, ElementsAre(2, 3));
  EXPECT_EQ(balance.pad_columns, 4);
  EXPECT_EQ(balance.padded_columns, 8);
  EXPECT_EQ(balance.pad_fraction(), 0.5);
  EXPECT_THAT(balance.slots, ElementsAre(2, 2, 2, 2));
}

// The columns 3, 4 ... 7 of the second rank are all padding of the document.
TEST(Balance, PaddingInsideADocumentIsPaddingToo) {
  const Balance balance = BalanceOf(PackedRow({3}, 2, 8), GlmDsa({}));
  EXPECT_THAT(balance.only_pads, ElementsAre(1));
  EXPECT_EQ(balance.pad_columns, 5);
}

TEST(Balance, ARankWithoutSlotsHoldsNoPadding) {
  const Balance balance = BalanceOf(RowOf({3}, 2), Explicit({{{0, 3}}, {}}));
  EXPECT_THAT(balance.only_pads, IsEmpty());
  EXPECT_THAT(balance.slots, ElementsAre(3, 0));
  EXPECT_DOUBLE_EQ(balance.slot_imbalance, 2);
}

TEST(Balance, SlotsAndColumnsAreThoseOfAllRows) {
  PackedBatch batch(3, 5);
  batch.Remove("position_ids");
  const Balance balance = BalanceOf(batch, Explicit({{{0, 3}}, {{3, 3}}}, {.padding_token_id = 0}));
  EXPECT_THAT(balance.slots, ElementsAre(9, 9));
  EXPECT_EQ(balance.slot_imbalance, 1);
  EXPECT_EQ(balance.padded_columns, 18);
  EXPECT_EQ(balance.pad_columns, 3);
  EXPECT_DOUBLE_EQ(balance.pad_fraction(), 1.0 / 6);
}

TEST(Balance, KnowsNoAreasOfDocumentsThatNothingTells) {
  PackedBatch batch(1, 4);
  batch.Remove("position_ids");
  const Balance balance = BalanceOf(batch, Contiguous({}));
  EXPECT_FALSE(balance.causal_documents || balance.full_documents);
  EXPECT_THAT(balance.causal_rows.ranks, ElementsAre(3, 7));
}

}  // namespace
}  // namespace cpshard
