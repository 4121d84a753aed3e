// Lengths of packed documents and their cumulative forms: contract 5.1, 5.3, 5.7. What is refused
// is in thd_refusals_test.cc.
#include "core/plan/packed_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Rows = PackedBatch::Rows;

PackedRows RowsOfBatch(const PackedBatch& batch, int64_t first, int64_t count) {
  const PlanValues values = batch.Values(PackedLengths::Needs(batch.spec()));
  const absl::StatusOr<PackedRows> rows = LengthsOf(batch.spec(), values).Rows(first, count);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : PackedRows();
}

TEST(PackedLengths, AreReadFromTheIntegerTensorsThatTheBatchHas) {
  PackedBatch batch(1, 8);
  EXPECT_THAT(PackedLengths::Needs(batch.spec()), IsEmpty());
  batch.Real({{8}});
  EXPECT_THAT(PackedLengths::Needs(batch.spec()), ElementsAre("seq_lens"));
  batch.Padded({{8}});
  EXPECT_THAT(PackedLengths::Needs(batch.spec()), ElementsAre("seq_lens", "seq_lens_padded"));
  batch.Set({"seq_lens", DType::kF32, {1, 1}}).SetScalar("seq_lens_padded", int64_t{8});
  EXPECT_THAT(PackedLengths::Needs(batch.spec()), IsEmpty());  // to be refused, not to be read
}

TEST(PackedLengths, OnlyTheExactSentinelIsAnUnusedPlaceWhereverItStands) {
  PackedBatch batch(2, 8);
  batch.Real({{-1000, 3, -1000, 0, 4}, {8}}).Padded({{4, 0, -1000, 4}, {-1000, 8}});
  const PackedRows rows = RowsOfBatch(batch, 0, 2);
  EXPECT_THAT(rows.documents,
              ElementsAre(Document{3, 4}, Document{0, 0}, Document{4, 4}, Document{8, 8}));
  EXPECT_THAT(rows.row_ends, ElementsAre(3, 4));
  EXPECT_EQ(rows.num_rows(), 2);
}

// D8: "seq_lens_padded not sent = real lengths are used".
TEST(PackedLengths, WithoutPaddedOnesADocumentIsAsWideAsItIsLong) {
  PackedBatch batch(1, 8);
  batch.Real({{3, 5}});
  EXPECT_THAT(RowsOfBatch(batch, 0, 1).documents, ElementsAre(Document{3, 3}, Document{5, 5}));
}

TEST(PackedLengths, SomeRowsHoldTheirOwnDocuments) {
  PackedBatch batch(4, 8);
  batch.Real({{8}, {3, 5}, {}, {1, 1, 6}});
  const PackedRows rows = RowsOfBatch(batch, 1, 2);
  EXPECT_EQ(rows.first_row, 1);
  EXPECT_THAT(rows.documents, ElementsAre(Document{3, 3}, Document{5, 5}));
  EXPECT_THAT(rows.row_ends, ElementsAre(2, 2));
}

TEST(PackedLengths, OfOneRowMayHaveOneAxis) {
  PackedBatch batch(1, 8);
  batch.Set({"seq_lens", DType::kI64, {2}}, {3, 4}).Padded({{4, 4}});
  EXPECT_THAT(RowsOfBatch(batch, 0, 1).documents, ElementsAre(Document{3, 4}, Document{4, 4}));
}

struct AccumulateCase {
  const char* name;
  int64_t length;  // S
  Rows real;
  std::optional<Rows> padded;
  std::vector<int64_t> expected_real, expected_padded;  // of the output; no padded: not emitted
};

// Cases G of the corpus by their number, and one for each clause of 5.3.
std::vector<AccumulateCase> AccumulateCases() {
  return {
      {"G1", 6, {{3, 2}, {2, 3}}, Rows{{4, 2}, {3, 3}}, {0, 3, 5, 7, 10}, {0, 4, 6, 9, 12}},
      {"G2", 6, {{3, 2}, {6}}, Rows{{4, 2}, {6}}, {0, 3, 5, 11}, {0, 4, 6, 12}},
      {"G3", 8, {{3, 3}}, Rows{{3, 5}}, {0, 3, 8}, {}},
      {"G5", 4, {{3}, {3}}, Rows{{4}, {4}}, {0, 3, 6}, {0, 4, 8}},
      {"G7", 8, {{3, 3}}, Rows{{4, 4}}, {0, 3, 6}, {0, 4, 8}},
      {"G10", 4, {{2, 0, 2}}, Rows{{2, 0, 2}}, {0, 2, 2, 4}, {}},
      {"G11", 4, {{2, 0}}, Rows{{2, 2}}, {0, 2, 4}, {}},
      {"G16", 2, {{2}}, Rows{{2}}, {0, 2}, {}},
      {"G17", 6, {{2, 3}}, std::nullopt, {0, 2, 5}, {}},
      {"OneDocumentIsEnough", 8, {{3}}, Rows{{8}}, {0, 8}, {}},
      {"AgreeingInTheLastOneTooIsAgreeing", 8, {{2, 2}}, Rows{{2, 2}}, {0, 2, 8}, {}},
      {"TheStreamDecidesNotTheLastPaddedLength", 8, {{2, 2}}, Rows{{2, 4}}, {0, 2, 8}, {}},
      {"ADifferenceBeforeTheLastDefeatsIt", 8, {{2, 4}}, Rows{{4, 4}}, {0, 2, 6}, {0, 4, 8}},
      {"ThatTheLastAloneAgreesDoesNotHelp", 6, {{1, 2}}, Rows{{2, 4}}, {0, 1, 3}, {0, 2, 6}},
      {"AFullStreamHasNothingToAbsorb", 8, {{2, 6}}, Rows{{2, 6}}, {0, 2, 8}, {}},
      {"TheLastDocumentMayLieInAnEarlierRow", 4, {{4}, {}}, Rows{{4}, {}}, {0, 8}, {}},
      {"AnEmptyLastDocumentIsExtendedToo", 4, {{4}, {0}}, Rows{{4}, {0}}, {0, 4, 8}, {}},
      {"RealLengthsAloneAreNotExtended", 4, {{4}, {1}}, std::nullopt, {0, 4, 5}, {}},
      {"AllEmpty", 4, {{0}}, std::nullopt, {0, 0}, {}},
  };
}

CumulativeLengths Accumulated(const AccumulateCase& test, LastRow last_row) {
  PackedBatch batch(test.real.size(), test.length);
  batch.Real(test.real);
  if (test.padded) batch.Padded(*test.padded);
  const PlanValues values = batch.Values(PackedLengths::Needs(batch.spec()));
  const PackedLengths lengths = LengthsOf(batch.spec(), values);
  const PackedRows rows = lengths.Rows(0, test.real.size()).value();
  const absl::StatusOr<CumulativeLengths> sums = Accumulate(rows, lengths, test.length, last_row);
  EXPECT_TRUE(sums.ok()) << sums.status();
  return sums.ok() ? *sums : CumulativeLengths();
}

TEST(Accumulate, AbsorbsTheTailExactlyWhereTheContractSaysSo) {
  for (const AccumulateCase& test : AccumulateCases()) {
    SCOPED_TRACE(test.name);
    const CumulativeLengths sums = Accumulated(test, LastRow::kMayBeShort);
    EXPECT_EQ(sums.real, test.expected_real);
    EXPECT_EQ(sums.padded, test.expected_padded);
    EXPECT_EQ(sums.boundaries(),
              test.expected_padded.empty() ? test.expected_real : test.expected_padded);
  }
}

// contract 5.3: "is not conditioned on cp"; T27.
TEST(Accumulate, AbsorbsTheSameWhereDocumentsAreCut) {
  int compared = 0;
  for (const AccumulateCase& test : AccumulateCases()) {
    const std::vector<int64_t>& ends =
        test.expected_padded.empty() ? test.expected_real : test.expected_padded;
    const bool fills = ends.back() == static_cast<int64_t>(test.real.size()) * test.length;
    if (!fills || test.real.back().empty()) continue;  // D5 refuses those where documents are cut
    SCOPED_TRACE(test.name);
    const CumulativeLengths sums = Accumulated(test, LastRow::kMustFill);
    EXPECT_EQ(sums.real, test.expected_real);
    EXPECT_EQ(sums.padded, test.expected_padded);
    ++compared;
  }
  EXPECT_EQ(compared, 15);
}

// D5: at cp > 1 the last row may be short only where absorption extends its last document.
TEST(Accumulate, WithoutAbsorptionAShortLastRowIsRefusedWhereDocumentsAreCut) {
  for (const std::optional<Rows>& padded :
       std::vector<std::optional<Rows>>{std::nullopt, Rows{{8}, {4}}}) {
    PackedBatch batch(2, 8);
    batch.Real({{7}, {4}});
    if (padded) {
      batch.Padded(*padded);
    } else {
      batch.Real({{8}, {4}});
    }
    const PlanValues values = batch.Values(PackedLengths::Needs(batch.spec()));
    const PackedLengths lengths = LengthsOf(batch.spec(), values);
    const PackedRows rows = lengths.Rows(0, 2).value();
    EXPECT_TRUE(Accumulate(rows, lengths, 8, LastRow::kMayBeShort).ok());
    const absl::Status status = Accumulate(rows, lengths, 8, LastRow::kMustFill).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("row 1: its lengths sum to 4, not S = 8"));
  }
}

TEST(Accumulate, TheLongestDocumentIsThatOfTheFinalLengths) {
  EXPECT_EQ(MaxSeqlen({0, 3, 5, 7, 10}), 3);
  EXPECT_EQ(MaxSeqlen({0, 3, 8}), 5);  // G3: 5, not 3
  EXPECT_EQ(MaxSeqlen({0, 6, 7}), 6);
  EXPECT_EQ(MaxSeqlen({0, 0}), 0);
}

}  // namespace
}  // namespace cpshard
