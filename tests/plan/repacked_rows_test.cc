// Rows laid out anew, contract 4.8 and 4.9. Values by hand.
#include "core/plan/repacked_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/plan/generated.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Values = std::vector<std::vector<int64_t>>;

constexpr int64_t kTrue = 1;

PlacedRow RowOf(const std::vector<PlacedDocument>& documents, int64_t multiple) {
  PlacedRow row;
  for (const PlacedDocument& document : documents) {
    EXPECT_TRUE(Place(document, multiple, "the multiple", row).ok());
  }
  return row;
}

// Documents of three and two tokens, the second two columns after the first; then an empty one.
// Widened to fours they take eight columns.
PlacedRow ThreeAndTwo() { return RowOf({{1, 0, 3}, {2, 5, 2}, {3, 7, 0}}, 4); }

const TokenRows kTwoRows{nullptr, 2, 8};

TEST(RepackedRows, DocumentsStandSideBySideEachWidened) {
  const PlacedRow row = ThreeAndTwo();
  EXPECT_THAT((std::vector<int64_t>{row[0].start, row[1].start, row[2].start}),
              ElementsAre(0, 4, 8));
  EXPECT_THAT((std::vector<int64_t>{row[0].width, row[1].width, row[2].width}),
              ElementsAre(4, 4, 0));
  EXPECT_EQ(WidthOf(row), 8);
  EXPECT_EQ(WidthOf({}), 0);
}

TEST(RepackedRows, EveryRowHasItsOwnPlacement) {
  const RepackedRows repacked({ThreeAndTwo(), RowOf({{1, 0, 8}}, 4)}, InnerPadding::kOfNobody, 8,
                              10);
  const LayoutPlan layout = repacked.Layout(kTwoRows);
  EXPECT_EQ(layout.rows, 2);
  EXPECT_EQ(layout.source_len, 8);
  EXPECT_EQ(layout.padded_len, 10);
  ASSERT_EQ(layout.placement.size(), 2u);
  EXPECT_EQ(layout.placement[0].ToString(), "0+3 .+1 5+2 .+4");
  EXPECT_EQ(layout.placement[1].ToString(), "0+8 .+2");
}

// Contract 4.8: ids and positions of a document go on over its padding; the tail has neither.
TEST(RepackedRows, PaddingInsideADocumentMayBeOfTheDocument) {
  const RepackedRows repacked({ThreeAndTwo()}, InnerPadding::kOfTheDocument, 10, 10);
  const TokenRows row{nullptr, 1, 8};
  EXPECT_EQ(WrittenOut(repacked.Positions(row).value), (Values{{0, 1, 2, 3, 0, 1, 2, 3, 0, 0}}));
  EXPECT_EQ(WrittenOut(repacked.Ids(row).value), (Values{{1, 1, 1, 1, 2, 2, 2, 2, 0, 0}}));
  EXPECT_EQ(WrittenOut(repacked.Mask("padding_mask", true, row).value),
            (Values{{0, 0, 0, 1, 0, 0, 1, 1, 1, 1}}));
}

// Contract 4.9: every slot without a token has id 0 and position 0.
TEST(RepackedRows, PaddingInsideADocumentMayBeOfNobody) {
  const RepackedRows repacked({ThreeAndTwo()}, InnerPadding::kOfNobody, 10, 10);
  const TokenRows row{nullptr, 1, 8};
  EXPECT_EQ(WrittenOut(repacked.Positions(row).value), (Values{{0, 1, 2, 0, 0, 1, 0, 0, 0, 0}}));
  EXPECT_EQ(WrittenOut(repacked.Ids(row).value), (Values{{1, 1, 1, 0, 2, 2, 0, 0, 0, 0}}));
  EXPECT_EQ(WrittenOut(repacked.Mask("attention_mask", false, row).value),
            (Values{{1, 1, 1, 0, 1, 1, 0, 0, 0, 0}}));
}

// The padding of 4.2 behind the layout: 1, 2, 3 behind a pad, else the document's positions go on.
TEST(RepackedRows, PositionsGoOnBehindTheColumnsThatAreLaidOut) {
  const RepackedRows repacked({ThreeAndTwo(), RowOf({{1, 0, 8}}, 4), {}}, InnerPadding::kOfNobody,
                              8, 11);
  const TokenRows rows{nullptr, 3, 8};
  EXPECT_EQ(WrittenOut(repacked.Positions(rows).value),
            (Values{{0, 1, 2, 0, 0, 1, 0, 0, 1, 2, 3},
                    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
                    {0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}}));
  for (const std::vector<int64_t>& ids : WrittenOut(repacked.Ids(rows).value)) {
    EXPECT_EQ(std::vector<int64_t>(ids.begin() + 8, ids.end()), (std::vector<int64_t>{0, 0, 0}));
  }
}

TEST(RepackedRows, StreamsAreOfTheRowsAndOverPaddedColumns) {
  const RepackedRows repacked({ThreeAndTwo(), {}}, InnerPadding::kOfNobody, 8, 8);
  for (const StreamPlan& stream : {repacked.Positions(kTwoRows), repacked.Ids(kTwoRows),
                                   repacked.Mask("padding_mask", kTrue, kTwoRows)}) {
    EXPECT_EQ(stream.dims, (std::vector<int64_t>{2, 8})) << stream.name;
    EXPECT_TRUE(std::get<Generated>(stream.value.from).over_padded_columns) << stream.name;
  }
  EXPECT_EQ(repacked.Positions(kTwoRows).dtype, DType::kI64);
  EXPECT_EQ(repacked.Ids(kTwoRows).name, "packed_seq_ids");
  EXPECT_EQ(repacked.Mask("m", false, kTwoRows).dtype, DType::kBool);
}

TEST(RepackedRows, ARowBeyondInt64IsRefusedWithTheMultiple) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  PlacedRow row;
  ASSERT_TRUE(Place({1, 0, 1}, kHuge, "pad_multiple", row).ok());
  const absl::Status status = Place({2, 1, 1}, kHuge, "pad_multiple", row);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 documents"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("pad_multiple = 4611686018427387904"));
  EXPECT_EQ(row.size(), 1u);
  PlacedRow empty;
  EXPECT_THAT(std::string(Place({1, 0, kHuge + 1}, kHuge, "pad_multiple", empty).message()),
              HasSubstr("4611686018427387905"));
}

TEST(PlacedRows, ABatchHasAtLeastOneRowAndNoMoreThanAPlanCanTake) {
  const auto check = [](int64_t rows) {
    const TensorSpec ids{"input_ids", DType::kI64, {rows, 8}};
    return CheckPlacedRows({&ids, rows, 8});
  };
  EXPECT_TRUE(check(1).ok());
  EXPECT_TRUE(check(kMaxPlacedRows).ok());
  for (const int64_t rows : {int64_t{0}, kMaxPlacedRows + 1}) {
    EXPECT_EQ(check(rows).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(check(rows).message()),
        testing::AllOf(testing::HasSubstr("input_ids"), testing::HasSubstr(std::to_string(rows)),
                       testing::HasSubstr(std::to_string(kMaxPlacedRows))));
  }
}

}  // namespace
}  // namespace cpshard
