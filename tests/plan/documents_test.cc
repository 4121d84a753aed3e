// Which documents stand on the rows of a plan. Values by hand.
#include "core/plan/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::Lt;

using Rows = PackedBatch::Rows;
using Spans = std::vector<DocumentSpan>;

Documents DocumentsOf(const PackedBatch& batch, const Sharder& sharder) {
  const absl::StatusOr<ShardPlan> plan = batch.PlanBy(sharder);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  return DocumentsOf(*plan, batch.spec(), batch.Values(DocumentsNeeds(batch.spec())));
}

// A batch whose streams have no values but for those that a test sets.
PackedBatch Plain(int64_t rows, int64_t length) {
  PackedBatch batch(rows, length);
  batch.Remove("position_ids");
  return batch;
}

TensorSpec Tokens(const std::string& name, std::vector<int64_t> dims, DType dtype = DType::kI64) {
  return {name, dtype, std::move(dims)};
}

// The documents of the rows of the only chunk, where `from` tells them.
RowsDocuments ToldBy(const std::string& from, const PackedBatch& batch, const Sharder& sharder) {
  const Documents documents = DocumentsOf(batch, sharder);
  EXPECT_EQ(documents.from, from);
  EXPECT_EQ(documents.chunks.size(), 1u);
  return documents.chunks.size() == 1 ? documents.chunks.front() : RowsDocuments();
}

PackedBatch Packed(int64_t length, const Rows& real, const Rows& padded) {
  PackedBatch batch(static_cast<int64_t>(real.size()), length);
  batch.Real(real).Padded(padded);
  batch.Set(Tokens("position_ids", {static_cast<int64_t>(real.size()), length}),
            std::vector<int64_t>(real.size() * length));
  return batch;
}

// --- what the layouts state ----------------------------------------------------------------------

TEST(StatedDocuments, OfThdHaveTheirRealTokensAndThenTheirPadding) {
  EXPECT_THAT(ToldBy("lengths", Packed(8, {{3, 4}, {7}}, {{4, 4}, {8}}), Thd({})),
              ElementsAre(Spans{{0, 3, 4}, {4, 4, 4}, {8, 7, 8}}));
}

TEST(StatedDocuments, OfAChunkBeginWithTheChunk) {
  const Documents documents = DocumentsOf(Packed(8, {{3, 4}, {7}}, {{4, 4}, {8}}), Thd({2}));
  EXPECT_THAT(documents.chunks,
              ElementsAre(ElementsAre(Spans{{0, 3, 4}, {4, 4, 4}}), ElementsAre(Spans{{0, 7, 8}})));
}

// Contract 5.3: the boundaries go to the end of the stream, the padding mask says what is real.
TEST(StatedDocuments, TheLastReachesToTheEndWhereItAbsorbsIt) {
  EXPECT_THAT(ToldBy("lengths", Packed(16, {{8, 3}}, {{8, 4}}), Thd({})),
              ElementsAre(Spans{{0, 8, 8}, {8, 3, 8}}));
}

// ... and does not where padding stands before it: the rest belongs to no document.
TEST(StatedDocuments, AShortLastRowEndsInPaddingOfNobody) {
  const PackedBatch batch = Packed(16, {{7, 3}}, {{8, 4}});
  for (const Sharder& sharder : {GlmDsa({}), DocumentHeadTail()}) {
    EXPECT_THAT(ToldBy("lengths", batch, sharder), ElementsAre(Spans{{0, 7, 8}, {8, 3, 4}}));
  }
}

TEST(StatedDocuments, AnEmptyOneIsCounted) {
  EXPECT_THAT(ToldBy("lengths", Packed(8, {{0, 4, 0, 4}}, {{0, 4, 0, 4}}), Thd({})),
              ElementsAre(Spans{{0, 0, 0}, {0, 4, 4}, {4, 0, 0}, {4, 4, 4}}));
}

TEST(StatedDocuments, OfMimoAreThoseOfThd) {
  PackedBatch batch = Packed(8, {{3, 4}}, {{4, 4}});
  batch.SetScalar("qkv_format", std::string("thd"));
  EXPECT_THAT(ToldBy("lengths", batch, Mimo({})), ElementsAre(Spans{{0, 3, 4}, {4, 4, 4}}));
}

// Contract 7.3: padding inside a document attends; what the dispatch adds behind the stream does
// not. Seven columns in chunks of two are padded to eight.
TEST(StatedDocuments, OfMagiEndWithTheStream) {
  PackedBatch batch = Packed(7, {{2, 4}}, {{3, 4}});
  batch.SetScalar("qkv_format", std::string("thd"));
  const MagiOptions options = {
      .variant = MagiVariant::kCustom, .chunk_size = 2, .min_chunks_per_rank = 1};
  EXPECT_EQ(batch.PlanBy(Magi(options)).value().chunks[0].padded_len, 8);
  EXPECT_THAT(ToldBy("lengths", batch, Magi(options)), ElementsAre(Spans{{0, 2, 3}, {3, 4, 4}}));
  batch.Cp(1);
  EXPECT_THAT(ToldBy("lengths", batch, Magi(options)), ElementsAre(Spans{{0, 2, 3}, {3, 4, 4}}));
}

// Documents of 3 and 2 tokens, widened to multiples of 4.
TEST(StatedDocuments, OfRowsLaidOutAnewAreAsWideAsTheyWereMade) {
  PackedBatch batch = Packed(8, {{3, 2}, {5}}, {{4, 2}, {5}});
  const SharedOptions shared{.padding_token_id = 0};
  const RowsDocuments want = {{{0, 3, 4}, {4, 2, 4}}, {{0, 5, 8}}};
  EXPECT_EQ(ToldBy("lengths", batch, DeepseekV4({4}, shared)), want);
  EXPECT_EQ(ToldBy("lengths", batch, DeepseekV41({1, 4}, shared)), want);
}

// D15: to these, padding of a document is a part of it; the second row is cut off at its end.
TEST(StatedDocuments, OfADocumentMapAreItsRuns) {
  PackedBatch batch = Packed(6, {{2, 0, 1}, {4, 9}}, {{3, 0, 1}, {4, 9}});
  const RowsDocuments want = {{{0, 3, 3}, {3, 0, 0}, {3, 1, 1}}, {{0, 4, 4}, {4, 2, 2}}};
  EXPECT_EQ(ToldBy("lengths", batch, Kimi(KimiVariant::kLinear)), want);
  EXPECT_EQ(ToldBy("lengths", batch, Glm5Next(Primary::kLeaveFull)), want);
}

TEST(StatedDocuments, OfBoundariesAreThoseOfEveryRow) {
  PackedBatch batch = Plain(2, 6);
  batch.Set(Tokens("cu_seqlens", {3}), {0, 4, 5});
  EXPECT_THAT(ToldBy("lengths", batch, Glm5Next(Primary::kLeaveFull)),
              ElementsAre(Spans{{0, 4, 4}, {4, 1, 1}}));
}

// Contract 4.18: what the lengths leave of the row is a segment, and the mask calls none padding.
TEST(StatedDocuments, OfQwen38FillTheRow) {
  PackedBatch batch = Plain(1, 6);
  batch.Real({{3, 2}});
  EXPECT_THAT(ToldBy("lengths", batch, Qwen38({}, {.padding_token_id = 0})),
              ElementsAre(Spans{{0, 3, 3}, {3, 2, 2}, {5, 1, 1}}));
  batch.Remove("seq_lens").Set(Tokens("cu_seqlens", {3}), {0, 2, 6});
  EXPECT_THAT(ToldBy("lengths", batch, Qwen38({}, {.padding_token_id = 0})),
              ElementsAre(Spans{{0, 2, 2}, {2, 4, 4}}));
}

// --- what streams tell ---------------------------------------------------------------------------

TEST(ToldDocuments, IdsAreOneDocumentAsLongAsTheyGoOn) {
  PackedBatch batch = Plain(2, 6);
  batch.Set(Tokens("_packed_seq_ids", {2, 6}), {1, 1, 2, 0, 0, 1,  //
                                                0, 3, 3, -1, 3, 3});
  EXPECT_THAT(ToldBy("_packed_seq_ids", batch, Contiguous({}, {.padding_token_id = 0})),
              ElementsAre(Spans{{0, 2, 2}, {2, 1, 1}, {5, 1, 1}}, Spans{{1, 2, 2}, {4, 2, 2}}));
}

TEST(ToldDocuments, AMaskTellsThemWhereItHoldsMoreThanOnes) {
  PackedBatch batch = Plain(2, 4);
  batch.Set(Tokens("attention_mask", {2, 4}), {1, 1, 1, 0, 1, 1, 2, 2});
  EXPECT_THAT(ToldBy("attention_mask", batch, Contiguous({})),
              ElementsAre(Spans{{0, 3, 3}}, Spans{{0, 2, 2}, {2, 2, 2}}));
  batch.Set(Tokens("attention_mask", {2, 4}), {1, 1, 1, 0, 1, 1, 1, 1});
  ToldBy("", batch, Contiguous({}));
  batch.Set(Tokens("attention_mask", {2, 1, 4, 4}), std::vector<int64_t>(32, 2));
  batch.Set(Tokens("padding_mask", {2, 4}), std::vector<int64_t>(8));  // so that nobody reads it
  ToldBy("", batch, Contiguous({}));
}

TEST(ToldDocuments, BeginWhereAPositionIsNotTheNextOne) {
  PackedBatch batch = Plain(2, 6);
  batch.Set(Tokens("position_ids", {2, 6}), {0, 1, 2, 0, 1, 2,  //
                                             5, 6, 9, 3, 8, 9});
  EXPECT_THAT(
      ToldBy("position_ids", batch, RoundRobin({})),
      ElementsAre(Spans{{0, 3, 3}, {3, 3, 3}}, Spans{{0, 2, 2}, {2, 1, 1}, {3, 1, 1}, {4, 2, 2}}));
}

// As pads are often sent: all at position 0, or clamped to the last.
TEST(ToldDocuments, EqualPositionsAtTheEndOfARowAreNone) {
  PackedBatch batch = Plain(3, 6);
  batch.Set(Tokens("position_ids", {3, 6}), {0, 1, 2, 0, 0, 0,  //
                                             0, 1, 2, 3, 3, 3,  //
                                             0, 1, 2, 3, 4, 0});
  EXPECT_THAT(ToldBy("position_ids", batch, RoundRobin({})),
              ElementsAre(Spans{{0, 3, 3}}, Spans{{0, 4, 4}}, Spans{{0, 5, 5}, {5, 1, 1}}));
}

// Rows padded on the left, with 1 or with 0: a document begins at the last of the zeros.
TEST(ToldDocuments, EqualPositionsBeforeADocumentAreNone) {
  PackedBatch batch = Plain(3, 6);
  batch.Set(Tokens("position_ids", {3, 6}), {1, 1, 1, 0, 1, 2,  //
                                             0, 0, 0, 1, 2, 3,  //
                                             0, 1, 0, 0, 0, 1});
  EXPECT_THAT(ToldBy("position_ids", batch, RoundRobin({})),
              ElementsAre(Spans{{3, 3, 3}}, Spans{{2, 4, 4}}, Spans{{0, 2, 2}, {4, 2, 2}}));
}

TEST(ToldDocuments, EqualPositionsOfTwoKindsAreNoneEither) {
  PackedBatch batch = Plain(1, 8);
  batch.Set(Tokens("position_ids", {1, 8}), {7, 7, 0, 1, 5, 5, 3, 3});
  EXPECT_THAT(ToldBy("position_ids", batch, RoundRobin({})), ElementsAre(Spans{{2, 2, 2}}));
}

// Blocks of columns that go on are passed over; what begins inside of them, and at their ends, is
// seen. Documents of 1, 2, 3, ... tokens, in every place that a block has.
TEST(ToldDocuments, BeginInEveryPlaceOfALongRow) {
  for (const DType dtype : {DType::kI64, DType::kI16}) {
    Spans want;
    std::vector<int64_t> positions;
    for (int64_t length = 2; positions.size() < 5000; ++length) {
      want.push_back({static_cast<int64_t>(positions.size()), length, length});
      for (int64_t i = 0; i < length; ++i) positions.push_back(i);
    }
    const auto columns = static_cast<int64_t>(positions.size());
    PackedBatch batch = Plain(1, columns);
    batch.Set(Tokens("position_ids", {1, columns}, dtype), positions);
    EXPECT_THAT(ToldBy("position_ids", batch, RoundRobin({}, {.padding_token_id = 0})),
                ElementsAre(want));
  }
}

// The rule for a row of positions, restated: cut where they do not go on, then take out what
// stands.
Spans ByTheRule(const std::vector<int64_t>& row) {
  Spans cut;
  for (size_t i = 0; i < row.size(); ++i) {
    if (i == 0 || row[i] != row[i - 1] + 1) cut.push_back({static_cast<int64_t>(i), 0, 0});
    cut.back().real = ++cut.back().length;
  }
  Spans kept;
  const auto stand = [&](const DocumentSpan& a, const DocumentSpan& b) {
    return a.length == 1 && b.length == 1 && row[a.begin] == row[b.begin];
  };
  for (size_t i = 0; i < cut.size(); ++i) {
    const bool stands =
        (i > 0 && stand(cut[i - 1], cut[i])) || (i + 1 < cut.size() && stand(cut[i], cut[i + 1]));
    if (!stands) kept.push_back(cut[i]);
  }
  const auto length = static_cast<int64_t>(row.size());
  return kept.empty() ? Spans{{0, length, length}} : kept;
}

// One in `every` positions stands, begins anew or falls back; the others go on.
std::vector<int64_t> RandomPositions(int64_t length, int64_t every, std::mt19937& random) {
  std::vector<int64_t> row = {static_cast<int64_t>(random() % 3)};
  while (static_cast<int64_t>(row.size()) < length) {
    const bool breaks = random() % every == 0;
    row.push_back(!breaks             ? row.back() + 1
                  : random() % 2 == 0 ? row.back()
                                      : static_cast<int64_t>(random() % 3));
  }
  return row;
}

TEST(ToldDocuments, OfRandomPositionsAreThoseOfTheRule) {
  std::mt19937 random(5);
  int told = 0;
  for (int round = 0; round < 3000; ++round) {
    const int64_t length = 1 + random() % (round % 2 == 0 ? 600 : 20);
    const std::vector<int64_t> row = RandomPositions(length, 1 + random() % 12, random);
    PackedBatch batch = Plain(1, length);
    batch.Set(Tokens("position_ids", {1, length}, DType::kI32), row);
    const Spans want = ByTheRule(row);
    const bool tells = static_cast<int64_t>(want.size()) <= 1 + length / 2;
    const Documents documents = DocumentsOf(batch, RoundRobin({}, {.padding_token_id = 0}));
    ASSERT_EQ(documents.from, tells ? "position_ids" : "") << testing::PrintToString(row);
    if (!tells) continue;
    ASSERT_EQ(documents.Of(0, 0), want) << testing::PrintToString(row);
    ++told;
  }
  EXPECT_THAT(told, AllOf(Gt(2000), Lt(3000)));
}

// --- what is none of documents -------------------------------------------------------------------

// Of eight columns in a row four may begin a document beside the first.
TEST(ToldDocuments, PositionsThatBeginAtMostColumnsTellNone) {
  PackedBatch batch = Plain(1, 8);
  batch.Set(Tokens("position_ids", {1, 8}), {7, 6, 5, 4, 3, 4, 5, 6});
  EXPECT_THAT(ToldBy("position_ids", batch, RoundRobin({})),
              ElementsAre(Spans{{0, 1, 1}, {1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 4, 4}}));
  batch.Set(Tokens("position_ids", {1, 8}), {7, 6, 5, 4, 3, 2, 3, 4});
  EXPECT_THAT(ToldBy("", batch, RoundRobin({})), ElementsAre(Spans{{0, 8, 8}}));
}

// A row of positions counts as often as it stands for one: 512 documents in 2,048 rows may be.
TEST(ToldDocuments, MoreThanAreKeptAreNotTold) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < 1024; ++i) positions.push_back(i % 2);
  for (const int64_t rows : {2048, 2049}) {
    PackedBatch batch = Plain(rows, 1024);
    batch.Set(Tokens("position_ids", {1, 1024}), positions);
    const std::string from = rows == 2048 ? "position_ids" : "";
    EXPECT_EQ(DocumentsOf(batch, Contiguous({})).from, from);
  }
}

// Boundaries stand for every row: 2,000 documents, all but one empty, in as many rows.
TEST(StatedDocuments, MoreThanAreKeptAreNotTold) {
  std::vector<int64_t> boundaries(2001, 0);
  boundaries.back() = 4;
  for (const int64_t rows : {500, 2000}) {
    PackedBatch batch = Plain(rows, 4);
    batch.Set(Tokens("cu_seqlens", {2001}), boundaries);
    const Documents documents = DocumentsOf(batch, Glm5Next(Primary::kLeaveFull));
    EXPECT_EQ(documents.from, rows == 500 ? "lengths" : "");
    EXPECT_EQ(documents.Of(0, 0).size(), rows == 500 ? 2000u : 1u);
  }
}

TEST(ToldDocuments, PositionsThatNeverChangeTellOne) {
  PackedBatch batch = Plain(1, 4);
  batch.Set(Tokens("position_ids", {1, 4}), {0, 0, 0, 0});
  EXPECT_THAT(ToldBy("position_ids", batch, RoundRobin({})), ElementsAre(Spans{{0, 4, 4}}));
}

TEST(ToldDocuments, PositionsAtTheEndsOfInt64AreReadToo) {
  PackedBatch batch = Plain(1, 4);
  batch.Set(Tokens("position_ids", {1, 4}), {INT64_MAX, INT64_MIN, INT64_MIN + 1, INT64_MAX});
  EXPECT_THAT(ToldBy("position_ids", batch, RoundRobin({})),
              ElementsAre(Spans{{0, 1, 1}, {1, 2, 2}, {3, 1, 1}}));
}

// Of positions [3, B, S] the first axis: columns of an image stand at one position.
TEST(ToldDocuments, OfThreeAxesBeginWhereTheFirstFalls) {
  PackedBatch batch = Plain(1, 6);
  batch.Set(Tokens("position_ids", {3, 1, 6}), {0, 1, 1, 5, 0, 1,  //
                                                0, 1, 2, 5, 5, 1,  //
                                                0, 0, 0, 0, 0, 0});
  EXPECT_THAT(ToldBy("position_ids", batch, Contiguous({}, {.padding_token_id = 0})),
              ElementsAre(Spans{{0, 4, 4}, {4, 2, 2}}));
}

TEST(ToldDocuments, OneRowOfPositionsStandsForEveryRow) {
  PackedBatch batch = Plain(3, 4);
  batch.Set(Tokens("position_ids", {1, 4}), {0, 1, 0, 1});
  EXPECT_THAT(ToldBy("position_ids", batch, Contiguous({})),
              ElementsAre(Spans{{0, 2, 2}, {2, 2, 2}}));
}

TEST(ToldDocuments, RowsThatAreAlikeHaveOneEntry) {
  PackedBatch batch = Plain(3, 4);
  batch.Set(Tokens("position_ids", {3, 4}), {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  const Spans halves = {{0, 2, 2}, {2, 2, 2}};
  EXPECT_THAT(ToldBy("position_ids", batch, Contiguous({})), ElementsAre(halves));
  batch.Set(Tokens("position_ids", {3, 4}), {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3});
  EXPECT_THAT(ToldBy("position_ids", batch, Contiguous({})),
              ElementsAre(halves, halves, Spans{{0, 4, 4}}));
  batch.Set(Tokens("position_ids", {3, 4}), {0, 1, 0, 1, 0, 1, 2, 3, 0, 1, 0, 1});
  EXPECT_THAT(ToldBy("position_ids", batch, Contiguous({})),
              ElementsAre(halves, Spans{{0, 4, 4}}, halves));
}

TEST(ToldDocuments, IdsComeBeforeAMaskAndAMaskBeforePositions) {
  PackedBatch batch = Plain(1, 4);
  batch.Set(Tokens("position_ids", {1, 4}), {0, 1, 2, 0});
  batch.Set(Tokens("attention_mask", {1, 4}), {1, 2, 2, 2});
  batch.Set(Tokens("_packed_seq_ids", {1, 4}), {1, 1, 2, 2});
  EXPECT_THAT(DocumentsNeeds(batch.spec()),
              ElementsAre("_packed_seq_ids", "attention_mask", "position_ids"));
  EXPECT_THAT(ToldBy("_packed_seq_ids", batch, Contiguous({})),
              ElementsAre(Spans{{0, 2, 2}, {2, 2, 2}}));
  batch.Remove("_packed_seq_ids");
  EXPECT_THAT(ToldBy("attention_mask", batch, Contiguous({})),
              ElementsAre(Spans{{0, 1, 1}, {1, 3, 3}}));
  batch.Remove("attention_mask");
  EXPECT_THAT(ToldBy("position_ids", batch, Contiguous({})),
              ElementsAre(Spans{{0, 3, 3}, {3, 1, 1}}));
}

TEST(ToldDocuments, AStreamOfAnotherShapeOrOfFloatsIsPassedOver) {
  PackedBatch batch = Plain(2, 4);
  batch.Set(Tokens("position_ids", {2, 4}), {0, 1, 2, 3, 0, 1, 0, 1});
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{8}, {2, 3}, {1, 4}, {4, 2}, {2, 4, 1}}) {
    const int64_t elements = Product(dims);
    batch.Set(Tokens("_packed_seq_ids", dims), std::vector<int64_t>(elements, 1));
    EXPECT_EQ(DocumentsOf(batch, Contiguous({})).from, "position_ids") << DimsString(dims);
  }
  batch.Set(Tokens("_packed_seq_ids", {2, 4}, DType::kF32), std::vector<int64_t>(8));
  EXPECT_EQ(DocumentsOf(batch, Contiguous({})).from, "position_ids");
  batch.Set(Tokens("attention_mask", {2, 4}, DType::kBool), std::vector<int64_t>(8, 1));
  EXPECT_THAT(DocumentsNeeds(batch.spec()), ElementsAre("position_ids"));
}

TEST(ToldDocuments, WithoutTheValuesOfAStreamTheNextOneTells) {
  PackedBatch batch = Plain(1, 4);
  batch.Set(Tokens("_packed_seq_ids", {1, 4}), {1, 1, 1, 2});
  batch.Set(Tokens("position_ids", {1, 4}), {0, 1, 0, 1});
  const ShardPlan plan = batch.PlanBy(Contiguous({})).value();
  EXPECT_EQ(DocumentsOf(plan, batch.spec(), batch.Values({"position_ids"})).from, "position_ids");
  EXPECT_EQ(DocumentsOf(plan, batch.spec(), {}).from, "");
}

// Rows become one stream, or one each of two chunks; no document goes over the end of a row.
TEST(ToldDocuments, OfAFlatStreamStandOneRowBehindTheOther) {
  PackedBatch batch = Plain(2, 4);
  batch.Set(Tokens("input_ids", {2, 4}), std::vector<int64_t>(8, 5));
  batch.Set(Tokens("_packed_seq_ids", {2, 4}), {1, 1, 2, 2, 2, 2, 2, 0});
  batch.Cp(1);
  const SharedOptions shared{.padding_token_id = 9};
  EXPECT_THAT(ToldBy("_packed_seq_ids", batch, Thd({}, shared)),
              ElementsAre(Spans{{0, 2, 2}, {2, 2, 2}, {4, 3, 3}}));
  const Documents chunks = DocumentsOf(batch, Thd({2}, shared));
  EXPECT_THAT(chunks.chunks,
              ElementsAre(ElementsAre(Spans{{0, 2, 2}, {2, 2, 2}}), ElementsAre(Spans{{0, 3, 3}})));
}

// Source columns 0 ... 3 of the first row stand on padded columns 2 ... 5, in two pieces.
TEST(ToldDocuments, StandWhereThePlacementPutsThem) {
  LayoutPlan layout{.rows = 1, .source_len = 4, .padded_len = 6};
  IndexMap& placement = layout.placement.emplace_back();
  placement.Append({kFill, 2});
  placement.Append({2, 2});
  placement.Append({0, 2});
  ShardPlan plan;
  plan.chunks = {layout};
  PackedBatch batch = Plain(1, 4);
  batch.Set(Tokens("_packed_seq_ids", {1, 4}), {1, 2, 2, 2});
  const Documents documents = DocumentsOf(plan, batch.spec(), batch.Values({"_packed_seq_ids"}));
  EXPECT_THAT(documents.chunks, ElementsAre(ElementsAre(Spans{{2, 2, 2}, {4, 1, 1}, {5, 1, 1}})));
}

// --- where nothing tells them --------------------------------------------------------------------

TEST(WholeRows, AreOneDocumentEachWhoseTokensHaveASource) {
  const PackedBatch batch = Plain(2, 6);
  const RowsDocuments want = {{{0, 6, 8}}};
  EXPECT_EQ(ToldBy("", batch, RoundRobin({})), want);
  EXPECT_EQ(WholeRows(batch.PlanBy(RoundRobin({})).value()).chunks.front(), want);
}

TEST(WholeRows, AreSoWhateverTheyArePackedWith) {
  const PackedBatch batch = Packed(8, {{3, 2}, {5}}, {{4, 2}, {5}});
  const ShardPlan plan = batch.PlanBy(DeepseekV4({4}, {.padding_token_id = 0})).value();
  const Documents whole = WholeRows(plan);
  EXPECT_EQ(whole.from, "");
  EXPECT_THAT(whole.chunks, ElementsAre(ElementsAre(Spans{{0, 5, 8}}, Spans{{0, 5, 8}})));
  EXPECT_EQ(whole.Of(0, 1), (Spans{{0, 5, 8}}));
}

TEST(WholeRows, OfAPlanWithoutALayoutAreNone) {
  PackedBatch batch = Plain(2, 6);
  batch.Set(Tokens("_packed_seq_ids", {2, 6}), std::vector<int64_t>(12, 1)).Cp(1);
  const Documents documents = DocumentsOf(batch, DeepseekV4({}));  // cut nothing, report nothing
  EXPECT_THAT(documents.chunks, IsEmpty());
  EXPECT_EQ(documents.from, "");
}

// However many rows there may be of them.
TEST(WholeRows, AreThoseOfABatchWithoutColumns) {
  PackedBatch batch = Plain(int64_t{1} << 40, 0);
  batch.Set(Tokens("_packed_seq_ids", {int64_t{1} << 40, 0}));
  EXPECT_EQ(ToldBy("", batch, Contiguous({})), (RowsDocuments{{{0, 0, 0}}}));
}

}  // namespace
}  // namespace cpshard
