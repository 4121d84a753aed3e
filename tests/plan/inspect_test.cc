// What is said of a plan beside its layout, and of layouts that are legal but unwise.
#include "core/plan/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Integers = std::vector<int64_t>;

const SharedOptions kPadId{.padding_token_id = 0};

// With the values of all that an inspection reads.
Inspection Inspected(const Sharder& sharder, const PackedBatch& batch) {
  const absl::StatusOr<ShardPlan> plan = batch.PlanBy(sharder);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  return Inspect(*plan, batch.spec(), batch.Values(InspectionNeeds(batch.spec())));
}

std::vector<Notice> NoticesOn(const Sharder& sharder, const PackedBatch& batch) {
  return Inspected(sharder, batch).notices;
}

// Rows of positions; every token is supervised.
PackedBatch Positioned(const PackedBatch::Rows& positions) {
  const int64_t rows = static_cast<int64_t>(positions.size());
  const int64_t columns = static_cast<int64_t>(positions.front().size());
  Integers flat;
  for (const auto& row : positions) flat.insert(flat.end(), row.begin(), row.end());
  PackedBatch batch(rows, columns);
  batch.Set({"labels", DType::kI64, {rows, columns}}, Integers(rows * columns, 5));
  batch.Set({"position_ids", DType::kI64, {rows, columns}}, flat);
  return batch;
}

Integers UpTo(int64_t length) {
  Integers positions(length);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

// One row that is one document, with these labels.
PackedBatch Labelled(const Integers& labels) {
  const int64_t length = static_cast<int64_t>(labels.size());
  PackedBatch batch = Positioned({UpTo(length)});
  batch.Set({"labels", DType::kI64, {1, length}}, labels);
  return batch;
}

testing::Matcher<Notice> Says(const std::string& code, const std::vector<std::string>& parts) {
  std::vector<testing::Matcher<std::string>> texts;
  for (const std::string& part : parts) texts.push_back(HasSubstr(part));
  return AllOf(Field(&Notice::code, code), Field(&Notice::text, testing::AllOfArray(texts)));
}

// --- documents that are cut as one (case B024) ---------------------------------------------------

const PackedBatch::Rows kPacked = {{0, 1, 2, 3, 0, 1, 2, 3}};

TEST(Notices, SayThatPackedRowsAreCutAsOneDocument) {
  EXPECT_THAT(NoticesOn(RoundRobin({}), Positioned(kPacked)),
              ElementsAre(Says("documents_cut_as_one", {"'position_ids'", "1 of 1 rows",
                                                        "row 0 has 2", "column 4", "thd"})));
}

TEST(Notices, SayNothingOfOneDocument) {
  EXPECT_THAT(NoticesOn(RoundRobin({}), Positioned({UpTo(8)})), IsEmpty());
}

TEST(Notices, SayNothingOfPackedRowsWhoseRanksHoldOnePieceEach) {
  EXPECT_THAT(NoticesOn(Contiguous({}), Positioned(kPacked)), IsEmpty());
  EXPECT_THAT(NoticesOn(RoundRobin({}), Positioned(kPacked).Cp(1)), IsEmpty());
}

TEST(Notices, SayNothingOfALayoutThatKnowsTheDocuments) {
  PackedBatch batch = Positioned(kPacked);
  EXPECT_THAT(NoticesOn(Thd({}), batch.Real({{4, 4}})), IsEmpty());
}

TEST(Notices, NameTheFirstRowThatIsPacked) {
  const PackedBatch batch = Positioned({UpTo(8), {0, 1, 0, 1, 2, 0, 1, 2}, kPacked[0]});
  EXPECT_THAT(
      NoticesOn(RoundRobin({}), batch),
      ElementsAre(Says("documents_cut_as_one", {"2 of 3 rows", "row 1 has 3", "column 2"})));
}

// Cases B027, B028.
TEST(Notices, TakePaddingForNoDocument) {
  for (const Integers& row : {Integers{0, 1, 2, 3, 4, 5, 0, 0}, Integers{0, 1, 2, 3, 4, 5, 1, 1},
                              Integers{0, 0, 0, 1, 2, 3, 4, 5}}) {
    const PackedBatch batch = Positioned({row});
    for (const Notice& notice : NoticesOn(RoundRobin({}), batch)) {
      EXPECT_NE(notice.code, "documents_cut_as_one") << notice.text;
    }
  }
}

// Two documents of 6 and 2: rank 0 holds 0 1 6 7, so 1 + 2 + 1 + 2 pairs; rank 1 the other 18.
TEST(Notices, SayHowUnevenTheDocumentsAre) {
  EXPECT_THAT(NoticesOn(RoundRobin({}), Positioned({{0, 1, 2, 3, 4, 5, 0, 1}})),
              ElementsAre(Says("documents_cut_as_one", {"1.5 times the mean", "1 times that"})));
}

// --- ranks without a supervised token (case B054) ------------------------------------------------

TEST(Notices, NameTheRanksWithoutASupervisedTokenAndTheCountToDivideBy) {
  const PackedBatch batch = Labelled({-100, -100, -100, -100, -100, -100, 17, 18}).Cp(4);
  EXPECT_THAT(
      NoticesOn(Contiguous({}), batch),
      ElementsAre(Says("unsupervised_ranks", {"3 of 4 ranks", "(0, 1, 2)", "its 2 labels"})));
}

TEST(Notices, NameSomeOfManyRanks) {
  Integers labels(64, -100);
  labels[0] = 5;
  EXPECT_THAT(NoticesOn(Contiguous({}), Labelled(labels).Cp(32)),
              ElementsAre(Says("unsupervised_ranks",
                               {"31 of 32", "(1, 2, 3, 4, 5, 6, 7, 8 and 23 more)"})));
}

TEST(Notices, SayThatNoLabelCounts) {
  for (const int64_t cp_size : {1, 2}) {
    EXPECT_THAT(NoticesOn(Contiguous({}), Labelled(Integers(8, -100)).Cp(cp_size)),
                ElementsAre(Says("unsupervised_ranks", {"no label of the batch counts"})));
  }
}

TEST(Notices, SayNothingOfLabelsThatAreNotThere) {
  EXPECT_THAT(NoticesOn(Identity(), Labelled(Integers(8, -100)).Remove("labels")), IsEmpty());
}

// --- much padding --------------------------------------------------------------------------------

TEST(Notices, SayThatMoreThanAFifthIsPadding) {
  const Sharder sharder = Contiguous({.pad_multiple = 5}, kPadId);
  EXPECT_THAT(NoticesOn(sharder, Labelled(Integers(8, 5))), IsEmpty());  // 2 of 10
  EXPECT_THAT(NoticesOn(sharder, Labelled(Integers(7, 5))),
              ElementsAre(Says("much_padding", {"3 of 10", "30 %", "3 of them added by the layout",
                                                "7 columns become 10", "= 5"})));
}

TEST(Notices, CountThePaddingOfTheBatchToo) {
  PackedBatch batch = Labelled(Integers(8, 5));
  batch.Set({"padding_mask", DType::kBool, {1, 8}}, {0, 0, 0, 0, 0, 0, 1, 1});
  EXPECT_THAT(NoticesOn(Contiguous({}), batch),
              ElementsAre(Says("much_padding", {"2 of 8", "25 %", "0 of them"})));
}

TEST(Notices, SayNothingOfABatchWithoutTokens) {
  EXPECT_THAT(NoticesOn(Contiguous({}), Positioned({{}})), IsEmpty());
}

// --- all of it -----------------------------------------------------------------------------------

TEST(Inspection, BeginsWithTheNoticesOfThePlanItself) {
  PackedBatch batch = Labelled(Integers(8, -100));
  batch.Real({{3, 4}}).Padded({{4, 4}});
  const std::vector<Notice> notices =
      NoticesOn(Kimi(KimiVariant::kLinear, kPadId), batch);  // decision D15
  ASSERT_GE(notices.size(), 2u);
  EXPECT_EQ(notices[0].code, "document_padding_counts_as_real");
  EXPECT_EQ(notices[1].code, "unsupervised_ranks");
}

TEST(Inspection, HasABalanceWhereThereIsALayout) {
  EXPECT_TRUE(Inspected(DeepseekV4({}), Labelled(UpTo(8)).Cp(2)).balance);
  EXPECT_FALSE(Inspected(DeepseekV4({}), Labelled(UpTo(8)).Cp(1)).balance);
}

TEST(Inspection, NamesEveryStreamOnce) {
  PackedBatch batch = Labelled(UpTo(8));
  batch.Set({"attention_mask", DType::kI64, {1, 8}}, Integers(8, 1));
  EXPECT_THAT(InspectionNeeds(batch.spec()),
              testing::UnorderedElementsAre("labels", "attention_mask", "position_ids"));
}

}  // namespace
}  // namespace cpshard
