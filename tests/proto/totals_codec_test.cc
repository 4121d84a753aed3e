#include "proto/totals_codec.h"

#include <gtest/gtest.h>

#include <string>

namespace cpshard {
namespace {

TEST(TotalsCodec, TotalsSurviveAndSayOverWhichGroupTheyAreSummed) {
  BatchTotals totals{1, 2, {3, 4, 5}, 6, "lengths", 7, {}};
  totals.balance = {{1.5, 2, 3}, {4, 5, 6}, AreaTotals{7, 8, 9}, AreaTotals{10, 11, 12}, 13, 14,
                    15,          16};
  v1::Totals message;
  EncodeTotals(totals, &message);
  EXPECT_EQ(DecodeTotals(message), totals);
  EXPECT_EQ(message.summed_over(), v1::SUMMED_OVER_CP_GROUP);
  EXPECT_EQ(message.num_label_tokens(), 1);
  EXPECT_EQ(message.num_tokens_excl_tail_pad(), 2);
  EXPECT_EQ(message.tokens().supervised(), 5);
  EXPECT_EQ(message.balance().causal_rows().imbalance(), 1.5);
  EXPECT_EQ(message.balance().causal_documents().useful(), 8);
  EXPECT_EQ(message.balance().full_documents().scheduled(), 12);
  EXPECT_EQ(message.balance().ranks_of_pads(), 16);
}

TEST(TotalsCodec, ANumberThatIsNotKnownIsAbsentAndNotZero) {
  const BatchTotals unknown;
  v1::Totals message;
  EncodeTotals(unknown, &message);
  EXPECT_FALSE(message.has_num_label_tokens());
  EXPECT_FALSE(message.has_num_tokens_excl_tail_pad());
  EXPECT_FALSE(message.tokens().has_supervised());
  EXPECT_FALSE(message.has_balance());
  EXPECT_EQ(DecodeTotals(message), unknown);
  BatchTotals zero;
  zero.num_label_tokens = zero.num_tokens_excl_tail_pad = 0;
  zero.tokens.supervised = 0;
  zero.balance = BalanceTotals();
  message.Clear();
  EncodeTotals(zero, &message);
  EXPECT_TRUE(message.has_num_label_tokens());
  EXPECT_EQ(DecodeTotals(message), zero);
}

TEST(TotalsCodec, LoadsSurviveWithAndWithoutAreas) {
  for (const RankLoad& load : {RankLoad{}, RankLoad{{1, 2, 3}, 4.5, 5.5, 6.5, 7.5},
                               RankLoad{{1, 2, {}}, 0.0, 0.0, {}, {}}}) {
    v1::RankLoad message;
    EncodeLoad(load, &message);
    EXPECT_EQ(DecodeLoad(message), load);
    EXPECT_EQ(message.has_full_documents(), load.full_documents.has_value());
  }
}

TEST(TotalsCodec, DocumentsSurvive) {
  const DocumentCounts document{1, 2, {3, 4, 5}, {6, 7, 8}};
  v1::DocumentTotals message;
  EncodeDocument(document, &message);
  EXPECT_EQ(DecodeDocument(message), document);
  EXPECT_EQ(message.begin(), 3);
  EXPECT_EQ(message.real(), 4);
  EXPECT_EQ(message.length(), 5);
}

TEST(TotalsCodec, PadCostsSurviveButForTheChoice) {
  PadCosts costs;
  costs.rule = {8, "2 * cp_size = 8", 16, "row", 32, {}};
  costs.padded = {8, 0, 16};
  costs.row = 32;
  v1::PadCosts message;
  EncodePadCosts(costs, &message);
  const PadCosts read = DecodePadCosts(message);
  EXPECT_EQ(read.rule.document_multiple, 8);
  EXPECT_EQ(read.rule.document_term, "2 * cp_size = 8");
  EXPECT_EQ(read.rule.row_multiple, 16);
  EXPECT_EQ(read.rule.row_term, "row");
  EXPECT_EQ(read.rule.row_minimum, 32);
  EXPECT_EQ(read.padded, costs.padded);
  EXPECT_EQ(read.row, 32);
}

TEST(TotalsCodec, AnAnswerSurvivesWithWhatIsAbsentInIt) {
  Explanation full;
  full.place = {SourceToken{1, 2}, PaddedColumn{3, 4, 5}, {{6, 7}, {8, 9}}};
  full.document = DocumentPlace{10, {11, 12, 13}, 14};
  full.previous = TokenPlace{SourceToken{1, 1}, PaddedColumn{3, 4, 4}, {{6, 6}}};
  full.next = TokenPlace{SourceToken{1, 3}, {}, {}};
  v1::PlaceAnswer message;
  EncodePlaceAnswer(full, &message);
  const Explanation read = DecodePlaceAnswer(message);
  EXPECT_EQ(read.place, full.place);
  EXPECT_EQ(read.document->index, 10);
  EXPECT_EQ(read.document->span, full.document->span);
  EXPECT_EQ(read.document->position, 14);
  EXPECT_EQ(read.previous, full.previous);
  EXPECT_EQ(read.next, full.next);
  message.Clear();
  EncodePlaceAnswer({}, &message);
  const Explanation dropped = DecodePlaceAnswer(message);
  EXPECT_EQ(dropped.place, TokenPlace());
  EXPECT_FALSE(dropped.document || dropped.previous || dropped.next);
}

}  // namespace
}  // namespace cpshard
