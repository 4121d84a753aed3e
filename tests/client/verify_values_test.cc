// Values that are wrong in shards that are cut right: labels, positions, masks, padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/verify/report.h"
#include "tests/client/verify_fixture.h"

namespace cpshard::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(VerifyTest, ALabelThatCrossesADocumentsEndIsNamedWithBothDocuments) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  Set(Stream(shards[1], "labels"), 1, IdOf(0, 6));  // column 5: the last of document 0
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_THAT(Unequal(findings), ElementsAre("labels"));
  const FirstDifference& first = *Of(findings, "labels").first;
  EXPECT_EQ(first.rank, 1);
  EXPECT_THAT(first.index, ElementsAre(0, 1));
  EXPECT_EQ(first.place->place.source, (SourceToken{0, 5}));
  EXPECT_EQ(first.place->document->position, 5);
  EXPECT_EQ(FirstOf(findings, "labels"),
            "-100, 16: the id of token 6 of row 0, the first of document 1: the label crosses the "
            "end of document 0");
  EXPECT_EQ(findings.edges.document_ends.wrong, 1);
  EXPECT_EQ(findings.edges.shard_edges.wrong, 0);
  EXPECT_EQ(findings.edges.first->found, 16);
  EXPECT_EQ(findings.edges.first->why, "document 0 ends here");
  EXPECT_EQ(Of(findings, "labels").differing.front().differing, 1);
}

TEST_F(VerifyTest, APadThatIsCountedAsRealIsNamed) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  Set(Stream(shards[0], "padding_mask"), 6, 0);  // column 14
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_THAT(Unequal(findings), ElementsAre("padding_mask"));
  EXPECT_THAT(CauseOf(findings, "padding_mask"),
              HasSubstr("padding counted as real: 1 element not masked"));
  EXPECT_EQ(FirstOf(findings, "padding_mask"),
            "true, false: padding counted as real: the column holds no token");
  EXPECT_EQ(Of(findings, "padding_mask").first->place->place.source, std::nullopt);
  EXPECT_EQ(Of(findings, "padding_mask").first->place->place.padded->column, 14);
}

TEST_F(VerifyTest, ATokenThatIsMaskedIsNamed) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  Set(Stream(shards[0], "padding_mask"), 8 + 2, 1);
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_EQ(FirstOf(findings, "padding_mask"), "false, true: a token counted as padding");
  EXPECT_EQ(Of(findings, "padding_mask").first->place->place.source, (SourceToken{1, 2}));
}

TEST_F(VerifyTest, AMaskOfTheOtherPolarityIsInverted) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  for (Batch& shard : shards) {
    Tensor& mask = Stream(shard, "padding_mask");
    for (int64_t i = 0; i < 16; ++i) Set(mask, i, 1 - ViewValues(mask)[i]);
  }
  Write(shards);
  EXPECT_THAT(CauseOf(Verified(kRoundRobin), "padding_mask"), HasSubstr("inverted: "));
}

TEST_F(VerifyTest, ALabelThatIsLostAtAShardsEndIsAWrongEdge) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  Set(Stream(shards[1], "labels"), 8 + 7, kIgnored);  // column 11 of row 1
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_EQ(findings.edges.shard_edges.wrong, 1);
  EXPECT_EQ(findings.edges.document_ends.wrong, 0);
  EXPECT_EQ(findings.edges.first->expected, 1022);
  EXPECT_EQ(findings.edges.first->why, "the id of token 12 of row 1, the next");
  EXPECT_THAT(findings.edges.first->meaning, HasSubstr("no label (-100)"));
  EXPECT_THAT(FirstOf(findings, "labels"), HasSubstr("1022, -100: no label"));
}

// labels = ids of the next slot of the shard, the last one rolled round to the first.
TEST_F(VerifyTest, LabelsThatWereMadeAfterTheCutAreWrongAtTheEdges) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  for (Batch& shard : shards) {
    const ValueView ids = ViewValues(Stream(shard, "input_ids"));
    for (int64_t i = 0; i < 16; ++i) {
      Set(Stream(shard, "labels"), i, ids[i / 8 * 8 + (i % 8 + 1) % 8]);
    }
  }
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_EQ(FirstOf(findings, "labels"),
            "14, 22: the id of token 12 of row 0, which stands in the next slot of the shard: "
            "labels were shifted after the cut");
  EXPECT_THAT(findings.edges.first->index, ElementsAre(0, 3));

  Request rank1{.cp_size = 2, .ranks = {1}};
  const EdgeProbe edges = Ask(kRoundRobin, rank1)->edges;
  // Column 5 is a document's end; the shard's last slot, column 11, has the id of column 4.
  EXPECT_EQ(edges.document_ends.wrong, 2);
  EXPECT_EQ(edges.shard_edges.wrong, 2);
  Set(Stream(shards[1], "labels"), 1, kIgnored);
  Write(shards);
  EXPECT_THAT(Ask(kRoundRobin, rank1)->edges.first->meaning,
              HasSubstr("the id of token 4 of row 0, the shard's first slot"));
}

TEST_F(VerifyTest, LabelsThatAreNotShiftedAreNamed) {
  std::vector<Batch> shards = Shards(kContiguous, 2);
  for (Batch& shard : shards) {
    std::memcpy(Stream(shard, "labels").buffer.data(), Stream(shard, "input_ids").buffer.data(),
                16 * 8);
  }
  Write(shards);
  const Findings findings = Verified(kContiguous);
  EXPECT_EQ(FirstOf(findings, "labels"), "11, 10: the token's own id: not shifted");
  EXPECT_THAT(CauseOf(findings, "labels"), HasSubstr("shifted by one: "));
}

TEST_F(VerifyTest, LabelsAreProbedByTheRuleThatTheBatchFollows) {
  Add("labels", IdOf);
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  Write(shards);
  Findings findings = Verified(kRoundRobin);
  EXPECT_FALSE(findings.different());
  EXPECT_EQ(findings.edges.rule, Labels::Rule::kOwn);
  EXPECT_EQ(findings.edges.document_ends.wrong, 0);

  Set(Stream(shards[0], "labels"), 3, IdOf(0, 4));
  Write(shards);
  findings = Verified(kRoundRobin);
  EXPECT_EQ(findings.edges.shard_edges.wrong, 1);
  EXPECT_THAT(FirstOf(findings, "labels"),
              HasSubstr("13, 14: the id of token 4 of row 0, the next"));
}

TEST_F(VerifyTest, LabelsThatFollowNoRuleAreNotProbed) {
  Add("labels", [](int64_t row, int64_t column) { return 5000 + row + column; });
  Write(Shards(kRoundRobin, 2));
  const Findings findings = Verified(kRoundRobin);
  EXPECT_FALSE(findings.different());
  EXPECT_THAT(findings.edges.not_probed, HasSubstr("of 28 supervised tokens"));
  EXPECT_THAT(ToText(findings), HasSubstr("edges: not probed"));
}

TEST_F(VerifyTest, AnEdgeThatTheBatchHasWrongIsNoFaultOfTheCut) {
  Add("labels", [](int64_t row, int64_t column) {
    return column == kColumns - 1 ? kIgnored : IdOf(row, column + 1);  // over documents' ends
  });
  Write(Shards(kRoundRobin, 2));
  const Findings findings = Verified(kRoundRobin);
  EXPECT_FALSE(findings.different());
  EXPECT_EQ(findings.edges.document_ends.wrong, 2);
  EXPECT_EQ(findings.edges.wrong_as_in_batch, 2);
  EXPECT_TRUE(findings.edges.first->as_in_batch);
  EXPECT_THAT(findings.edges.first->meaning, HasSubstr("crosses the end of document 0"));
}

TEST_F(VerifyTest, PositionsThatGoOnOverADocumentsEndAreNamed) {
  std::vector<Batch> shards = Shards(kContiguous, 2);
  for (int64_t rank = 0; rank < 2; ++rank) {
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t column = 8 * rank + i % 8;
      Tensor& positions = Stream(shards[rank], "position_ids");
      if (column < kColumns) Set(positions, i, column);
    }
  }
  Write(shards);
  const Findings findings = Verified(kContiguous);
  EXPECT_THAT(CauseOf(findings, "position_ids"),
              HasSubstr("positions_of_row: positions count the row, not each of its documents: 16 "
                        "elements"));
  EXPECT_EQ(FirstOf(findings, "position_ids"),
            "0, 6: the position in the row: it goes on across the start of document 1");
}

TEST_F(VerifyTest, PositionsThatWereMadeAfterTheCutAreNamed) {
  std::vector<Batch> shards = Shards(kContiguous, 2);
  for (Batch& shard : shards) {
    for (int64_t i = 0; i < 16; ++i) Set(Stream(shard, "position_ids"), i, i % 8);
  }
  Write(shards);
  Request rank1{.cp_size = 2, .ranks = {1}};
  const Findings findings = *Ask(kContiguous, rank1);
  EXPECT_THAT(CauseOf(findings, "position_ids"), HasSubstr("positions_of_slots"));
  EXPECT_THAT(FirstOf(findings, "position_ids"), HasSubstr("2, 0: the slot in the shard"));
}

// Rank 1 has what is ours of rank 0 then, but its other streams are its own.
TEST_F(VerifyTest, PositionsThatWereMadeAfterTheCutAreNoRanksInAnotherOrder) {
  Add("position_ids", [](int64_t, int64_t column) { return column; });
  std::vector<Batch> shards = Shards(kContiguous, 2);
  for (int64_t i = 0; i < 16; ++i) Set(Stream(shards[1], "position_ids"), i, i % 8);
  Write(shards);
  const Findings findings = Verified(kContiguous);
  EXPECT_THAT(CauseOf(findings, "position_ids"), HasSubstr("positions_of_slots"));
}

TEST_F(VerifyTest, WhereEveryStreamIsAnotherRanksSoAreThePositions) {
  Add("position_ids", [](int64_t, int64_t column) { return column; });
  std::vector<Batch> shards = Shards(kContiguous, 2);
  Write({shards[0], shards[0]});
  const Findings findings = Verified(kContiguous);
  EXPECT_EQ(CauseOf(findings, "position_ids"), "ranks_permuted: every rank has our rank 0's");
}

TEST_F(VerifyTest, OnlyPaddingIsToldFromTokens) {
  std::vector<Batch> shards = Shards(kContiguous, 2);
  Set(Stream(shards[1], "input_ids"), 6, 0);
  Set(Stream(shards[1], "input_ids"), 15, 0);
  Write(shards);
  const Findings findings = Verified(kContiguous);
  EXPECT_THAT(CauseOf(findings, "input_ids"), HasSubstr("only padding differs: 2 elements"));
  EXPECT_EQ(FirstOf(findings, "input_ids"), "7, 0: another fill: the column holds no token");
}

TEST_F(VerifyTest, ALabelOnPaddingAndAPadIdOnATokenAreNamed) {
  std::vector<Batch> shards = Shards(kContiguous, 2);
  Set(Stream(shards[1], "labels"), 6, 7);
  Set(Stream(shards[0], "input_ids"), 2, 7);
  Write(shards);
  const Findings findings = Verified(kContiguous);
  EXPECT_EQ(FirstOf(findings, "labels"), "-100, 7: a label on padding: the loss would count it");
  EXPECT_EQ(FirstOf(findings, "input_ids"), "12, 7: the pad id, where a token belongs");
}

TEST_F(VerifyTest, AValueThatIsNowhereIsSaidToBe) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  Set(Stream(shards[0], "input_ids"), 0, 77);
  Write(shards);
  EXPECT_THAT(FirstOf(Verified(kRoundRobin), "input_ids"), HasSubstr("nowhere"));
}

}  // namespace
}  // namespace cpshard::verify
