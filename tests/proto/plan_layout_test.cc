// What PlanLayout answers beside layouts: totals, documents, costs of padding, places.
#include "proto/plan_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/service.pb.h"
#include "proto/json.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PlanLayoutTest : public ::testing::Test {
 protected:
  // A stream [1, n] of these values.
  Tensor Row(const char* name, const std::vector<int64_t>& values) {
    Tensor tensor{{name, DType::kI64, {1, static_cast<int64_t>(values.size())}}, {}};
    tensor.buffer = *pool_.Allocate(values.size() * sizeof(int64_t));
    std::memcpy(tensor.buffer.data(), values.data(), tensor.buffer.size());
    return tensor;
  }

  // One row of tokens; every label but the first two counts.
  Batch Tokens(int64_t length) {
    std::vector<int64_t> ids(length, 7), labels(length, 8);
    std::fill_n(labels.begin(), std::min<int64_t>(length, 2), -100);
    return {{Row("input_ids", ids), Row("labels", labels)}, {}};
  }

  Batch Packed(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> positions;
    for (int64_t length : lengths) {
      for (int64_t i = 0; i < length; ++i) positions.push_back(i);
    }
    Batch batch = Tokens(static_cast<int64_t>(positions.size()));
    batch.tensors.push_back(Row("position_ids", positions));
    batch.tensors.push_back(Row("seq_lens", lengths));
    return batch;
  }

  absl::StatusOr<PlanSummary> Plan(const char* options, std::optional<int64_t> cp_size,
                                   const Batch& batch, const PlanQuestions& questions = {},
                                   PlanReply reply = PlanReply::kOfACall) {
    Request request{*Options::FromJson(options), cp_size, *ResolveRanks({}, cp_size.value_or(1)),
                    SpecOf(batch, cp_size), batch};
    return PlanLayoutOf(request, questions, Limits(), reply);
  }

  std::string Refusal(const absl::StatusOr<PlanSummary>& summary, absl::StatusCode code) {
    EXPECT_EQ(summary.status().code(), code) << summary.status();
    return std::string(summary.status().message());
  }

  BufferPool pool_;
};

constexpr char kThd[] = R"({"thd": {}})";
constexpr char kRoundRobin[] = R"({"round_robin": {}})";

TEST_F(PlanLayoutTest, LoadsAreThoseOfAllRanksWhicheverAreAskedFor) {
  const Batch batch = Tokens(6);  // padded to 8: rank 0 has columns 0 1 6 7, rank 1 has 2 to 5
  Request request{*Options::FromJson(kRoundRobin), 2, {1}, SpecOf(batch, 2), batch};
  const auto summary = PlanLayoutOf(request, {}, Limits(), PlanReply::kOfACall);
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_THAT(summary->layouts, SizeIs(1));
  ASSERT_THAT(summary->loads, SizeIs(2));
  EXPECT_EQ(summary->loads[0].tokens, (TokenCounts{2, 2, 0}));
  EXPECT_EQ(summary->loads[1].tokens, (TokenCounts{4, 0, 4}));
  EXPECT_EQ(summary->totals->tokens, (TokenCounts{6, 2, 4}));
  EXPECT_EQ(summary->totals->num_label_tokens, 4);
  EXPECT_EQ(summary->totals->unsupervised_ranks, 1);
}

TEST_F(PlanLayoutTest, DocumentsOfAPackedRowAreCountedEach) {
  const auto summary = Plan(kThd, 2, Packed({8, 4}));
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->totals->documents, 2);
  EXPECT_EQ(summary->totals->documents_from, "lengths");
  ASSERT_THAT(summary->documents, SizeIs(2));
  EXPECT_EQ(summary->documents[0].span, (DocumentSpan{0, 8, 8}));
  EXPECT_EQ(summary->documents[0].tokens, (TokenCounts{8, 0, 6}));
  EXPECT_EQ(summary->documents[1].span, (DocumentSpan{8, 4, 4}));
  // Every document is cut head and tail: the same work for both ranks.
  EXPECT_EQ(summary->totals->balance->causal_documents->imbalance, 1);
}

TEST_F(PlanLayoutTest, WhatIsCountedByStreamsWithoutBytesIsAbsent) {
  Batch batch = Tokens(6);
  for (Tensor& tensor : batch.tensors) tensor.buffer = Buffer();
  const auto summary = Plan(kRoundRobin, 2, batch);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->layouts, SizeIs(2));
  EXPECT_FALSE(summary->totals->num_label_tokens);
  EXPECT_FALSE(summary->totals->tokens.supervised);
  EXPECT_EQ(summary->totals->tokens.pad, 2);
}

TEST_F(PlanLayoutTest, APlanThatReadsWhatIsNotThereAnswersWhatItReads) {
  Batch batch = Packed({8, 4});
  batch.tensors[3].buffer = Buffer();
  const auto summary = Plan(kThd, 2, batch, {{5}, {SourceToken{0, 0}}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->needs, ElementsAre("seq_lens"));
  EXPECT_THAT(summary->layouts, IsEmpty());
  EXPECT_FALSE(summary->totals);
  EXPECT_EQ(summary->pad_costs->row, 8) << "lengths ask nothing of the batch";
}

// --- costs of padding ----------------------------------------------------------------------------

TEST_F(PlanLayoutTest, LengthsAloneAreAnsweredWithTheirCostsAndNothingElse) {
  const auto summary = Plan(kThd, 4, {}, {{8, 4, 17}, {}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->pad_costs->padded, ElementsAre(8, 8, 24));
  EXPECT_EQ(summary->pad_costs->row, 40);
  EXPECT_FALSE(summary->totals);
  EXPECT_THAT(summary->layouts, IsEmpty());
  v1::PlanLayoutReply reply;
  ASSERT_TRUE(EncodePlanLayoutReply(*summary, &reply).ok());
  EXPECT_EQ(reply.pad_costs().document_term(), "2 * cp_size = 8");
  EXPECT_EQ(DecodePlanLayoutReply(reply)->pad_costs->padded, summary->pad_costs->padded);
}

TEST_F(PlanLayoutTest, LengthsOfAModelAreThoseOfTheLayoutThatItResolvesTo) {
  const auto summary =
      Plan(R"({"model": {"family": "DEEPSEEK_V4", "compress_ratios": [8]}})", 2, {}, {{9}, {}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->choice->layout, "deepseek_v4");
  EXPECT_THAT(summary->pad_costs->padded, ElementsAre(16));
  v1::PlanLayoutReply reply;
  ASSERT_TRUE(EncodePlanLayoutReply(*summary, &reply).ok());
  EXPECT_EQ(DecodePlanLayoutReply(reply)->pad_costs->rule.choice, summary->choice);
}

TEST_F(PlanLayoutTest, LengthsThatCannotBeAreRefused) {
  EXPECT_THAT(Refusal(Plan(kThd, 2, {}, {{3, -5}, {}}), absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("document 1"), HasSubstr("-5")));
  EXPECT_THAT(Refusal(Plan(kRoundRobin, {}, {}, {{3}, {}}), absl::StatusCode::kInvalidArgument),
              HasSubstr("needs a mesh"));
}

// --- places --------------------------------------------------------------------------------------

TEST_F(PlanLayoutTest, ATokenIsFoundAndItsSlotLeadsBackToIt) {
  const auto summary = Plan(kThd, 2, Packed({8, 4}),
                            {{}, {SourceToken{0, 6}, SlotQuery{{0, 2}, 0}, SourceToken{0, 11}}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_THAT(summary->answers, SizeIs(3));
  // Rank 0 holds columns 0 1 6 7 of the first document.
  const Explanation& sixth = summary->answers[0];
  EXPECT_THAT(sixth.place.held, ElementsAre(RankSlot{0, 2}));
  EXPECT_EQ(sixth.document->index, 0);
  EXPECT_EQ(sixth.document->position, 6);
  EXPECT_THAT(sixth.previous->held, ElementsAre(RankSlot{1, 3}));
  EXPECT_EQ(summary->answers[1].place, sixth.place);
  EXPECT_EQ(summary->answers[2].document->index, 1);
  EXPECT_FALSE(summary->answers[2].next) << "the last of its document";
  v1::PlanLayoutReply reply;
  ASSERT_TRUE(EncodePlanLayoutReply(*summary, &reply).ok());
  const auto read = DecodePlanLayoutReply(reply);
  ASSERT_TRUE(read.ok()) << read.status();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->answers[i].place, summary->answers[i].place);
    EXPECT_EQ(read->answers[i].previous, summary->answers[i].previous);
    EXPECT_EQ(read->answers[i].next, summary->answers[i].next);
  }
}

TEST_F(PlanLayoutTest, AQueryOutsideOfTheBatchIsRefusedByItsNumber) {
  for (const PlaceQuery& query : {PlaceQuery(SourceToken{0, 12}), PlaceQuery(SourceToken{1, 0}),
                                  PlaceQuery(SourceToken{0, -1}), PlaceQuery(SlotQuery{{2, 0}, 0}),
                                  PlaceQuery(SlotQuery{{0, 6}, 0})}) {
    EXPECT_THAT(Refusal(Plan(kThd, 2, Packed({8, 4}), {{}, {SourceToken{0, 0}, query}}),
                        absl::StatusCode::kInvalidArgument),
                HasSubstr("query 1"));
  }
}

TEST_F(PlanLayoutTest, TooManyQueriesAreRefused) {
  const std::vector<PlaceQuery> most(kMaxQueries, SourceToken{0, 0});
  EXPECT_TRUE(Plan(kRoundRobin, 2, Tokens(8), {{}, most}).ok());
  std::vector<PlaceQuery> more = most;
  more.push_back(SourceToken{0, 0});
  EXPECT_THAT(
      Refusal(Plan(kRoundRobin, 2, Tokens(8), {{}, more}), absl::StatusCode::kInvalidArgument),
      HasSubstr("1025 queries"));
  // 1,024 tokens that each of 4,096 ranks holds.
  EXPECT_THAT(Refusal(Plan(R"({"identity": {}})", 4096, Tokens(8), {{}, most}),
                      absl::StatusCode::kResourceExhausted),
              HasSubstr("ask fewer"));
}

TEST_F(PlanLayoutTest, APlanWithoutALayoutHasNoPlaces) {
  Batch batch = {{Row("x", {1, 2})}, {}};
  ASSERT_TRUE(Plan(R"({"identity": {}})", 2, batch).ok());
  EXPECT_THAT(Refusal(Plan(R"({"identity": {}})", 2, batch, {{}, {SourceToken{0, 0}}}),
                      absl::StatusCode::kFailedPrecondition),
              HasSubstr("layout"));
}

// --- sizes ---------------------------------------------------------------------------------------

TEST_F(PlanLayoutTest, DocumentsThatDoNotFitTheReplyAreLeftOutAndANoticeSaysSo) {
  const std::vector<int64_t> lengths(250'000, 2);
  const auto summary = Plan(R"({"glm_dsa": {}})", 1, Packed(lengths));
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_THAT(summary->documents, SizeIs(250'000));
  v1::PlanLayoutReply reply;
  ASSERT_TRUE(EncodePlanLayoutReply(*summary, &reply).ok());
  EXPECT_LE(static_cast<int64_t>(reply.ByteSizeLong()), kMaxUnaryBytes);
  EXPECT_EQ(reply.totals().documents(), 250'000);
  const auto read = DecodePlanLayoutReply(reply);
  EXPECT_THAT(read->documents, IsEmpty());
  EXPECT_EQ(read->notices.back().code, "documents_left_out");
  EXPECT_THAT(read->notices.back().text, HasSubstr("250000"));
}

TEST_F(PlanLayoutTest, AllOfAReplyIsInItsJson) {
  const auto summary = Plan(kThd, 2, Packed({8, 4}), {{5}, {SourceToken{0, 6}}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(*SummaryToJson(*summary),
              AllOf(HasSubstr("\"summed_over\":\"SUMMED_OVER_CP_GROUP\""),
                    HasSubstr("\"num_label_tokens\":\"10\""), HasSubstr("\"documents_from\""),
                    HasSubstr("\"pad_costs\""), HasSubstr("\"answers\""), HasSubstr("\"loads\"")));
}

}  // namespace
}  // namespace cpshard
