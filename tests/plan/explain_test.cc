// Where tokens go and slots come from, by hand: six tokens on eight columns, head and tail chunks
// for two ranks.
#include "core/plan/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/plan/packed.h"
#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// In the body of a TEST, Run is a member function of GoogleTest.
using Runs = std::vector<Run>;

// Two rows of six tokens, padded to eight.
//   rank 0: columns 0 1 6 7      rank 1: columns 2 3 4 5
ShardPlan RoundRobinPlan() { return PlanOf(RoundRobin({}), TokenBatch(2, 6)); }
LayoutTrace RoundRobinTrace() { return LayoutTrace::Of(RoundRobinPlan()).value(); }

std::vector<ShardLayout> RecordsOf(const ShardPlan& plan, uint64_t digest = 7) {
  std::vector<ShardLayout> records;
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    records.push_back(LayoutFor(plan, rank, digest));
  }
  return records;
}

TokenPlace PlaceOf(SourceToken token, PaddedColumn column, std::vector<RankSlot> held) {
  return {token, column, std::move(held)};
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

void ExpectOutside(const absl::Status& status, const std::vector<std::string>& parts) {
  ExpectRefused(status, absl::StatusCode::kInvalidArgument, parts);
}

void ExpectUnfit(const absl::Status& status, const std::vector<std::string>& parts) {
  ExpectRefused(status, absl::StatusCode::kFailedPrecondition, parts);
}

TEST(LayoutTrace, FindsTheSlotOfAToken) {
  const LayoutTrace trace = RoundRobinTrace();
  EXPECT_EQ(trace.OfToken({1, 1}).value(), PlaceOf({1, 1}, {0, 1, 1}, {{0, 1}}));
  EXPECT_EQ(trace.OfToken({0, 5}).value(), PlaceOf({0, 5}, {0, 0, 5}, {{1, 3}}));
}

TEST(LayoutTrace, FindsTheTokenOfASlot) {
  const LayoutTrace trace = RoundRobinTrace();
  EXPECT_EQ(trace.OfSlot({1, 0}, 1).value(), PlaceOf({1, 2}, {0, 1, 2}, {{1, 0}}));
}

TEST(LayoutTrace, APaddingSlotHasNoToken) {
  const TokenPlace place = RoundRobinTrace().OfSlot({0, 2}, 0).value();
  EXPECT_EQ(place.source, std::nullopt);
  EXPECT_EQ(place.padded, (PaddedColumn{0, 0, 6}));
}

TEST(LayoutTrace, KnowsTheShapesOfItsCoordinates) {
  const LayoutTrace trace = RoundRobinTrace();
  EXPECT_EQ(trace.source(), (RowShape{2, 6}));
  EXPECT_EQ(trace.rows(), 2);
  EXPECT_EQ(trace.padded_len(), 8);
  EXPECT_EQ(trace.cp_size(), 2);
  EXPECT_THAT(trace.ranks(), ElementsAre(0, 1));
  EXPECT_TRUE(trace.complete());
  EXPECT_TRUE(trace.knows_source());
}

TEST(LayoutTrace, EveryRankHoldsWhatIsNotCut) {
  const LayoutTrace trace = LayoutTrace::Of(PlanOf(Identity(), TokenBatch(1, 4))).value();
  EXPECT_THAT(trace.OfToken({0, 3}).value().held, ElementsAre(RankSlot{0, 3}, RankSlot{1, 3}));
}

// Two rows of eight tokens as one stream of 16 columns; two documents of eight, each cut head and
// tail for two ranks: rank 0 holds 0 1 6 7 and 8 9 14 15.
TEST(LayoutTrace, CountsTheRowsOfTheCallerWhereTheyWereFlattened) {
  PackedBatch batch(2, 8);
  batch.Real({{8}, {8}}).Padded({{8}, {8}});
  const LayoutTrace trace = LayoutTrace::Of(batch.PlanBy(Thd({})).value()).value();
  EXPECT_EQ(trace.source(), (RowShape{2, 8}));
  EXPECT_TRUE(trace.flattened());
  EXPECT_EQ(trace.OfToken({1, 6}).value(), PlaceOf({1, 6}, {0, 0, 14}, {{0, 6}}));
  EXPECT_EQ(trace.OfSlot({1, 4}, 0).value(), PlaceOf({1, 2}, {0, 0, 10}, {{1, 4}}));
}

// The same rows as two chunks of one row: slots go on from chunk to chunk.
TEST(LayoutTrace, CountsTheSlotsOfStackedChunksOneAfterTheOther) {
  PackedBatch batch(2, 8);
  batch.Real({{8}, {8}}).Padded({{8}, {8}});
  const ShardPlan plan = batch.PlanBy(Thd({.num_chunks = 2})).value();
  const LayoutTrace trace = LayoutTrace::Of(plan).value();
  EXPECT_EQ(trace.chunks(), 2);
  EXPECT_EQ(trace.padded_len(), 8);
  EXPECT_EQ(trace.OfToken({1, 6}).value(), PlaceOf({1, 6}, {1, 0, 6}, {{0, 6}}));
  EXPECT_EQ(trace.OfSlot({1, 4}, 0).value(), PlaceOf({1, 2}, {1, 0, 2}, {{1, 4}}));
}

// A chunked batch reports no layout, so records cannot tell the caller's rows apart.
TEST(LayoutTrace, OfTheRecordsOfChunksTokensAreThoseOfTheStream) {
  PackedBatch batch(2, 8);
  batch.Real({{8}, {8}}).Padded({{8}, {8}});
  const auto records = RecordsOf(batch.PlanBy(Thd({.num_chunks = 2})).value());
  const LayoutTrace trace = LayoutTrace::Of(records, {.rows = 1, .chunks = 2}).value();
  EXPECT_FALSE(trace.knows_source());
  EXPECT_EQ(trace.source(), (RowShape{1, 16}));
  EXPECT_EQ(trace.OfToken({0, 14}).value(), PlaceOf({0, 14}, {1, 0, 6}, {{0, 6}}));
}

// Documents of 3 and 2 tokens, each widened to a multiple of 4 behind the other; token 5 of the row
// belongs to none and is dropped.
TEST(LayoutTrace, ATokenThatWasDroppedIsNowhere) {
  PackedBatch batch(1, 6);
  batch.Real({{3, 2}}).Padded({{3, 2}});
  const ShardPlan plan =
      batch.PlanBy(DeepseekV4({.pad_multiple = 4}, {.padding_token_id = 0})).value();
  const auto records = RecordsOf(plan);
  for (const LayoutTrace& trace :
       {LayoutTrace::Of(plan).value(), LayoutTrace::Of(records, {}).value()}) {
    EXPECT_EQ(trace.OfToken({0, 5}).value(), (TokenPlace{SourceToken{0, 5}, std::nullopt, {}}));
    EXPECT_EQ(trace.OfToken({0, 3}).value(), PlaceOf({0, 3}, {0, 0, 4}, {{1, 0}}));
  }
}

TEST(LayoutTrace, OfSomeRanksTheOthersHoldNothingThatIsKnown) {
  std::vector<ShardLayout> records = RecordsOf(RoundRobinPlan());
  records.erase(records.begin());
  const LayoutTrace trace = LayoutTrace::Of(records, {.rows = 2}).value();
  EXPECT_FALSE(trace.complete());
  EXPECT_THAT(trace.OfToken({0, 2}).value().held, SizeIs(1));
  const TokenPlace place = trace.OfToken({0, 0}).value();
  EXPECT_EQ(place.padded, (PaddedColumn{0, 0, 0}));
  EXPECT_THAT(place.held, IsEmpty());
  ExpectRefused(trace.OfSlot({0, 0}, 0).status(), absl::StatusCode::kNotFound,
                {"rank 0", "1 of 2 ranks"});
}

TEST(LayoutTrace, OutsideOfARangeTheRangeIsNamed) {
  const LayoutTrace trace = RoundRobinTrace();
  ExpectOutside(trace.OfToken({2, 0}).status(), {"row 2", "0 ... 1"});
  ExpectOutside(trace.OfToken({-1, 0}).status(), {"row -1", "0 ... 1"});
  ExpectOutside(trace.OfToken({0, 6}).status(), {"token 6", "0 ... 5"});
  ExpectOutside(trace.OfToken({0, -1}).status(), {"token -1", "0 ... 5"});
  ExpectOutside(trace.OfSlot({2, 0}, 0).status(), {"rank 2", "0 ... 1"});
  ExpectOutside(trace.OfSlot({-1, 0}, 0).status(), {"rank -1", "0 ... 1"});
  ExpectOutside(trace.OfSlot({0, 4}, 0).status(), {"slot 4", "rank 0", "0 ... 3"});
  ExpectOutside(trace.OfSlot({0, -1}, 0).status(), {"slot -1", "0 ... 3"});
  ExpectOutside(trace.OfSlot({0, 0}, 2).status(), {"row 2", "0 ... 1"});
  ExpectOutside(trace.OfColumn({0, 0, 8}).status(), {"column 8", "0 ... 7"});
  ExpectOutside(trace.OfColumn({1, 0, 0}).status(), {"chunk 1", "0 ... 0"});
}

TEST(LayoutTrace, WhereThereIsNothingNoRangeIsNamed) {
  const LayoutTrace trace = LayoutTrace::Of(PlanOf(Identity(), TokenBatch(1, 0))).value();
  ExpectOutside(trace.OfToken({0, 0}).status(), {"token 0", "there are none"});
  ExpectOutside(trace.OfSlot({0, 0}, 0).status(), {"slot 0", "there are none"});
}

TEST(LayoutTrace, WithoutALayoutThereIsNothingToExplain) {
  ExpectUnfit(LayoutTrace::Of(ShardPlan()).status(), {"no layout"});
  ExpectUnfit(LayoutTrace::Of({}, {}).status(), {"no layout"});
  ExpectUnfit(LayoutTrace::Of(RecordsOf(ShardPlan()), {}).status(), {"nothing was cut"});
}

TEST(LayoutTrace, RecordsOfDifferentBatchesAreRefused) {
  const ShardPlan plan = RoundRobinPlan();
  const auto with = [&](auto change) {
    std::vector<ShardLayout> records = RecordsOf(plan);
    change(records[1]);
    return LayoutTrace::Of(records, {.rows = 2}).status();
  };
  ExpectUnfit(with([](ShardLayout& record) { record.batch_digest = 8; }),
              {"ranks 0 and 1", "not of one batch", "digest 7 and 8"});
  ExpectUnfit(with([](ShardLayout& record) { record.cp_size = 3; }), {"cp_size 2 and 3"});
  ExpectUnfit(with([](ShardLayout& record) { record.padded_seq_len = 12; }),
              {"padded_seq_len 8 and 12"});
  ExpectUnfit(with([](ShardLayout& record) { record.original_seq_len.reset(); }),
              {"original_seq_len 6 and none"});
  ExpectUnfit(with([](ShardLayout& record) { record.cp_rank = 0; }), {"rank 0", "twice"});
  ExpectUnfit(with([](ShardLayout& record) { record.cp_rank = 2; }), {"rank 2", "group of 2"});
}

TEST(LayoutTrace, RunsThatAreNoPartOfTheColumnsAreRefused) {
  const auto with = [&](Runs runs) {
    std::vector<ShardLayout> records = RecordsOf(RoundRobinPlan());
    records[1].runs = std::move(runs);
    return LayoutTrace::Of(records, {.rows = 2}).status();
  };
  ExpectOutside(with({{6, 4}}), {"rank 1", "beyond the 8"});
  ExpectOutside(with({{2, 3}, {4, 1}}), {"rank 1", "column 4", "twice"});
  ExpectOutside(with({{2, -1}}), {"rank 1", "length -1"});
  ExpectOutside(with({{kFill, 4}}), {"rank 1", "no columns"});
  ExpectOutside(with({{int64_t{1} << 62, 4}}), {"rank 1"});
}

TEST(LayoutTrace, RecordsThatDoNotMakeAWholeAreRefused) {
  const auto with = [&](Runs runs, bool both = true) {
    std::vector<ShardLayout> records = RecordsOf(RoundRobinPlan());
    records[1].runs = std::move(runs);
    if (!both) records.erase(records.begin());
    return LayoutTrace::Of(records, {.rows = 2}).status();
  };
  ExpectUnfit(with({{2, 3}}), {"columns 5 ... 5 of 8", "in none"});
  ExpectUnfit(with({{1, 1}, {2, 4}}), {"column 1", "ranks 0 and 1"});
  ExpectUnfit(with({{0, 8}}), {"column 0", "ranks 0 and 1"});
  EXPECT_TRUE(with({{2, 3}}, false).ok());  // another rank may have it
}

TEST(LayoutTrace, SlotsOfAChunkWithColumnsOfAnotherAreRefused) {
  PackedBatch batch(2, 8);
  batch.Real({{8}, {8}}).Padded({{8}, {8}});
  auto records = RecordsOf(batch.PlanBy(Thd({.num_chunks = 2})).value());
  // Rank 0 holds columns 0 1 6 7 of each chunk of 8.
  records[0].runs = {{0, 2}, {14, 2}, {8, 2}, {6, 2}};
  ExpectOutside(LayoutTrace::Of(records, {.rows = 1, .chunks = 2}).status(),
                {"rank 0", "slot 2 is of chunk 0", "column 14 of chunk 1"});
}

TEST(LayoutTrace, ShapesThatDoNotGoWithTheRecordsAreRefused) {
  const std::vector<ShardLayout> rows = RecordsOf(RoundRobinPlan());
  ExpectUnfit(LayoutTrace::Of(rows, {.rows = 1, .chunks = 2}).status(),
              {"padded_seq_len 8", "2 chunks"});
  ExpectUnfit(LayoutTrace::Of(rows, {.rows = 2, .chunks = 0}).status(), {"0 chunks"});
  ExpectUnfit(LayoutTrace::Of(rows, {.rows = -1}).status(), {"-1 rows"});
  PackedBatch batch(2, 8);
  batch.Real({{8}, {8}}).Padded({{8}, {8}});
  const auto flat = RecordsOf(batch.PlanBy(Thd({})).value());
  ExpectUnfit(LayoutTrace::Of(flat, {.rows = 2}).status(), {"input_row_shape", "2 rows"});
  const auto chunks = RecordsOf(batch.PlanBy(Thd({.num_chunks = 2})).value());
  ExpectUnfit(LayoutTrace::Of(chunks, {.rows = 1, .chunks = 3}).status(), {"16", "3 chunks"});
}

// Documents of 3 real tokens on 4 columns, and of 2 on 4.
TEST(Explain, PlacesATokenInItsDocumentBetweenItsNeighbours) {
  const LayoutTrace trace = RoundRobinTrace();
  const Documents documents{{{{{0, 3, 4}, {4, 2, 4}}}}, "lengths"};
  const Explanation explanation = Explain(trace, documents, trace.OfToken({1, 1}).value());
  ASSERT_TRUE(explanation.document);
  EXPECT_EQ(explanation.document->index, 0);
  EXPECT_EQ(explanation.document->position, 1);
  EXPECT_FALSE(explanation.document->is_padding());
  EXPECT_EQ(explanation.previous, trace.OfToken({1, 0}).value());
  EXPECT_EQ(explanation.next, trace.OfToken({1, 2}).value());  // on the other rank
}

TEST(Explain, NeighboursEndWithTheDocument) {
  const LayoutTrace trace = RoundRobinTrace();
  const Documents documents{{{{{0, 3, 4}, {4, 2, 4}}}}, "lengths"};
  EXPECT_EQ(Explain(trace, documents, trace.OfToken({0, 2}).value()).next, std::nullopt);
  const Explanation second = Explain(trace, documents, trace.OfToken({0, 4}).value());
  EXPECT_EQ(second.document->index, 1);
  EXPECT_EQ(second.previous, std::nullopt);
  EXPECT_EQ(second.next, trace.OfToken({0, 5}).value());
}

TEST(Explain, PaddingOfADocumentHasNoNeighbours) {
  const LayoutTrace trace = RoundRobinTrace();
  const Documents documents{{{{{0, 3, 4}, {4, 2, 4}}}}, "lengths"};
  const Explanation explanation = Explain(trace, documents, trace.OfSlot({0, 3}, 0).value());
  EXPECT_EQ(explanation.document->position, 3);
  EXPECT_TRUE(explanation.document->is_padding());
  EXPECT_EQ(explanation.previous, std::nullopt);
  EXPECT_EQ(explanation.next, std::nullopt);
}

TEST(Explain, ColumnsBetweenDocumentsBelongToNone) {
  const LayoutTrace trace = RoundRobinTrace();
  const Documents documents{{{{{1, 1, 1}, {3, 2, 2}}}}, "lengths"};
  for (const int64_t column : {0, 2, 5, 7}) {
    EXPECT_FALSE(Explain(trace, documents, trace.OfColumn({0, 0, column}).value()).document)
        << column;
  }
}

TEST(Explain, AnEmptyDocumentTakesNoColumn) {
  const LayoutTrace trace = RoundRobinTrace();
  const Documents documents{{{{{0, 2, 2}, {2, 0, 0}, {2, 4, 4}, {6, 0, 0}}}}, "lengths"};
  EXPECT_EQ(Explain(trace, documents, trace.OfToken({0, 1}).value()).document->index, 0);
  EXPECT_EQ(Explain(trace, documents, trace.OfToken({0, 2}).value()).document->index, 2);
  EXPECT_EQ(Explain(trace, documents, trace.OfToken({0, 5}).value()).document->index, 2);
}

TEST(Explain, RowsHaveDocumentsOfTheirOwn) {
  const LayoutTrace trace = RoundRobinTrace();
  const Documents documents{{{{{0, 6, 6}}, {{0, 2, 2}, {2, 4, 4}}}}, "lengths"};
  EXPECT_EQ(Explain(trace, documents, trace.OfToken({0, 3}).value()).document->position, 3);
  EXPECT_EQ(Explain(trace, documents, trace.OfToken({1, 3}).value()).document->position, 1);
}

// 4,096 ranks over a million tokens: tables of the tokens of every rank would be 4 * 10^9 entries.
TEST(LayoutTrace, HoldsRunsAndNoTokens) {
  BatchSpec spec = TokenBatch(1, 1 << 20);
  spec.cp_size = 4096;
  const LayoutTrace trace = LayoutTrace::Of(PlanOf(RoundRobin({}), spec)).value();
  // Chunks of 128 tokens: the last one is the tail of rank 0.
  EXPECT_EQ(trace.OfToken({0, (1 << 20) - 1}).value().held, (std::vector<RankSlot>{{0, 255}}));
  EXPECT_EQ(trace.OfSlot({4095, 0}, 0).value().source, (SourceToken{0, 4095 * 128}));
}

}  // namespace
}  // namespace cpshard
