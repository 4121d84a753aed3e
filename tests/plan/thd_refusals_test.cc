// Every input that THD refuses, in one table: contract 4.7, 5.1, 5.7, 13, 14, decisions D5, D7-D9,
// D13, D14, D17. Each is one step beyond a border; what stands inside it is in thd_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <ostream>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

using Rows = PackedBatch::Rows;
using Parts = std::vector<std::string>;

struct Refusal {
  std::string name;  // a sentence about the input
  PackedBatch batch;
  Parts parts;  // stream, row, numbers and the way out, as the message has them
  ThdOptions options = {};
  SharedOptions shared = {.padding_token_id = 0};
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

// Two rows of eight tokens for two ranks; the first holds two documents, the second one.
PackedBatch Good() {
  PackedBatch batch(2, 8);
  batch.Real({{3, 4}, {8}}).Padded({{4, 4}, {8}});
  return batch;
}

PackedBatch GoodReal(const Rows& real) { return Good().Remove("seq_lens_padded").Real(real); }

PackedBatch Lengths(const Rows& real, const Rows& padded) {
  return Good().Real(real).Padded(padded);
}

// One row of `tokens` with these real lengths.
PackedBatch OneRow(int64_t tokens, std::vector<int64_t> real) {
  PackedBatch batch(1, tokens);
  batch.Real({std::move(real)});
  return batch;
}

std::vector<Refusal> OfPieces() {
  const Parts way_out = {"2 * cp_size = 4", "pad every document"};
  const auto parts = [&](Parts parts) {
    parts.insert(parts.end(), way_out.begin(), way_out.end());
    return parts;
  };
  return {
      {"TokensThatDoNotDivide", OneRow(6, {6}), parts({"input_ids", "1 rows of 6", "6 tokens"})},
      {"TokensOfAChunkThatDoNotDivide",
       PackedBatch(2, 6).Real({{6}, {6}}),
       parts({"input_ids", "1 rows of 6", "6 tokens"}),
       {.num_chunks = 2}},
      {"ADocumentThatDoesNotDivideThoughTheTokensDo", OneRow(8, {6, 2}),
       parts({"'seq_lens'", "row 0", "document 0", "length 6"})},
      {"APaddedDocumentThatDoesNotDivide", Lengths({{4, 4}, {5, 2}}, {{4, 4}, {6, 2}}),
       parts({"'seq_lens_padded'", "row 1", "document 0", "length 6"})},
      {"ADocumentOfALaterChunkThatDoesNotDivide",
       GoodReal({{8}, {4, 2, 2}}),
       parts({"'seq_lens'", "row 1", "document 1", "length 2"}),
       {.num_chunks = 2}},
      // The tail makes 2 of the last document's 1 (T27), and then the first does not divide either.
      {"AbsorptionThatDoesNotMakeDocumentsDivide", OneRow(8, {6, 1}).Padded({{6, 1}}),
       parts({"'seq_lens_padded'", "row 0", "document 0", "length 6"})},
      {"AbsorptionThatExtendsToWhatDoesNotDivide", OneRow(12, {2, 8, 1}).Padded({{2, 8, 1}}),
       parts({"'seq_lens_padded'", "row 0", "document 0", "length 2"})},
  };
}

std::vector<Refusal> OfLengths() {
  std::vector<Refusal> refusals = {
      {"ARealLengthOverItsPaddedOne",
       Lengths({{5, 3}, {8}}, {{4, 4}, {8}}),
       {"row 0", "document 0", "5 in 'seq_lens'", "4 in 'seq_lens_padded'",
        "padded length counts"}},
      {"ARealLengthOverItsPaddedOneInTheLastRow",
       Lengths({{4, 4}, {9}}, {{4, 4}, {8}}),
       {"row 1", "document 0", "9 in 'seq_lens'", "8 in 'seq_lens_padded'"}},
      {"ARealLengthOverItsPaddedOneBehindAnUnusedPlace",
       Lengths({{-1000, 3, 5}, {8}}, {{4, 4}, {8}}),
       {"row 0", "document 1", "5 in 'seq_lens'"}},
      {"FewerRealLengthsThanPaddedOnes",
       Lengths({{4}, {8}}, {{4, 4}, {8}}),
       {"row 0", "'seq_lens' has 1", "'seq_lens_padded' has 2", "the same documents", "-1000"}},
      {"MoreRealLengthsThanPaddedOnes",
       Lengths({{4, 4}, {4, 4}}, {{4, 4}, {8}}),
       {"row 1", "'seq_lens' has 2", "'seq_lens_padded' has 1", "the same documents"}},
      {"CountsThatDifferByRowThoughTheTotalsAgree",
       Lengths({{8}, {4, 4}}, {{4, 4}, {8}}),
       {"row 0", "'seq_lens' has 1", "'seq_lens_padded' has 2"}},
      {"RealLengthsThatPassInt64",
       GoodReal({{int64_t{1} << 62, int64_t{1} << 62}, {8}}),
       {"'seq_lens'", "row 0", "more than S = 8", "shorten"}},
      {"PaddedLengthsThatPassInt64",
       Lengths({{1, 1}, {8}}, {{int64_t{1} << 62, int64_t{1} << 62}, {8}}),
       {"'seq_lens_padded'", "row 0", "more than S = 8"}},
  };
  for (int64_t length :
       {int64_t{-1}, int64_t{-999}, int64_t{-1001}, std::numeric_limits<int64_t>::min()}) {
    const std::string digits = std::to_string(length).substr(1);
    const std::string entry = "entry 1 is -" + digits;
    refusals.push_back({"ARealLengthOfMinus" + digits,
                        Lengths({{4, length}, {8}}, {{4, 4}, {8}}),
                        {"'seq_lens'", "row 0", entry, ">= 0", "-1000"}});
    refusals.push_back({"APaddedLengthOfMinus" + digits,
                        Lengths({{4, 4}, {4, 4}}, {{4, 4}, {8, length}}),
                        {"'seq_lens_padded'", "row 1", entry, ">= 0", "-1000"}});
  }
  return refusals;
}

std::vector<Refusal> OfSums() {
  return {
      {"AShortFirstRow",
       GoodReal({{4}, {8}}),
       {"'seq_lens'", "row 0", "sum to 4", "S = 8", "fill"}},
      {"AShortFirstRowAtOneRank", GoodReal({{4}, {8}}).Cp(1), {"row 0", "sum to 4", "S = 8"}},
      {"AShortFirstRowWithoutAMesh", GoodReal({{4}, {8}}).Cp(std::nullopt), {"row 0", "sum to 4"}},
      {"AShortFirstRowWhosePaddedLengthsCount",
       Lengths({{3}, {8}}, {{4}, {8}}),
       {"'seq_lens_padded'", "row 0", "sum to 4", "S = 8"}},
      {"ALongFirstRow", GoodReal({{8, 8}, {8}}), {"row 0", "sum to 16", "S = 8", "shorten"}},
      // The totals agree, the rows do not.
      {"RowsThatFillEachOther", GoodReal({{4}, {8, 4}}), {"row 0", "sum to 4", "S = 8"}},
      {"ALongLastRowAtOneRank", GoodReal({{8}, {12}}).Cp(1), {"row 1", "sum to 12", "S = 8"}},
      {"AShortLastRowWithoutPaddedLengths",
       GoodReal({{4, 4}, {4}}),
       {"'seq_lens'", "row 1", "sum to 4", "S = 8", "pad its last one"}},
      {"AShortLastRowThatIsNotAbsorbed",
       Lengths({{3, 4}, {4}}, {{4, 4}, {4}}),
       {"'seq_lens_padded'", "row 1", "sum to 4", "S = 8", "pad its last one"}},
      {"AShortRowWithinAChunk",
       PackedBatch(4, 4).Cp(1).Real({{4}, {4}, {1}, {4}}),
       {"row 2", "sum to 1", "S = 4"},
       {.num_chunks = 2}},
      {"AShortLastRowOfAChunkThatIsCut",
       PackedBatch(2, 8).Real({{4}, {8}}),
       {"row 0", "sum to 4", "S = 8"},
       {.num_chunks = 2}},
      {"AFirstRowWithoutDocuments",
       GoodReal({{}, {4, 4}}).Cp(1),  // T26, case G13
       {"row 0", "sum to 0", "S = 8", "leave the row out"}},
      {"ALastRowWithoutDocumentsAtTwoRanks",
       GoodReal({{4, 4}, {}}),
       {"row 1", "sum to 0", "S = 8", "list one"}},
      {"ALastRowWithoutDocumentsThatAbsorptionPasses",
       Lengths({{8}, {}}, {{8}, {}}),
       {"'seq_lens_padded'", "row 1", "sum to 0", "S = 8"}},
      {"NoDocumentAtAll",
       GoodReal({{-1000}, {-1000}}).Cp(1),
       {"seq_lens", "rows 0 to 1", "-1000", "leave such rows out"}},
      {"NoPlaceForADocument", GoodReal({{}, {}}).Cp(1), {"seq_lens", "rows 0 to 1"}},
      {"AChunkWithoutDocuments",
       GoodReal({{8}, {}}).Cp(1),
       {"seq_lens", "rows 1 to 1"},
       {.num_chunks = 2}},
  };
}

std::vector<Refusal> OfTokens() {
  const auto empty = [](int64_t rows, int64_t length) {
    PackedBatch batch(rows, length);
    batch.Cp(1).Set({"seq_lens", DType::kI64, {rows, 0}});
    return batch;
  };
  constexpr int64_t kInt32End = int64_t{1} << 31;
  return {
      {"NoRows", empty(0, 8), {"input_ids", "[0, 8]", "B = 0", "S = 8", "needs one"}},
      {"NoColumns", empty(2, 0), {"input_ids", "[2, 0]", "B = 2", "S = 0"}},
      {"NoRowsInChunks", empty(0, 8), {"input_ids", "B = 0"}, {.num_chunks = 2}},
      {"CumulativeLengthsBeyondInt32",
       OneRow(kInt32End, {kInt32End}).Cp(1),
       {"'seq_lens'", "2147483648", "2147483647", "fewer rows"}},
      {"CumulativeLengthsBeyondInt32AtTwoRanks",
       OneRow(kInt32End + 8, {kInt32End + 8}),
       {"'seq_lens'", "2147483656", "2147483647", "more chunks"}},
      {"RowsThatDoNotDivideIntoChunks",
       PackedBatch(3, 4).Real({{4}, {4}, {4}}),
       {"input_ids", "3 rows", "num_chunks 2", "multiple"},
       {.num_chunks = 2}},
      {"MoreChunksThanAPlanTakes",
       PackedBatch(8192, 1).Cp(1).Real(Rows(8192, {1})),
       {"num_chunks is 8192", "at most 4096"},
       {.num_chunks = 8192}},
      {"MoreChunksThanRows", Good(), {"input_ids", "2 rows", "num_chunks 3"}, {.num_chunks = 3}},
      {"DocumentsTimesRanksOverTheLimit",
       OneRow(8192, std::vector<int64_t>(1025, -1000)).Cp(4096),
       {"'seq_lens'", "1025 entries", "4096 ranks", "4194304", "fewer"}},
      {"PaddedDocumentsTimesRanksOverTheLimit",
       OneRow(8192, {8192}).Cp(4096).Padded({std::vector<int64_t>(4097, -1000)}),
       {"'seq_lens_padded'", "4097 entries", "4096 ranks"}},
  };
}

std::vector<Refusal> OfPositions() {
  const auto positions = [](std::vector<int64_t> dims) {
    return Good().Set({"position_ids", DType::kI64, std::move(dims)});
  };
  return {
      {"ThreeAxesOfPositionsAtTwoRanks",
       positions({3, 2, 8}),  // case H8
       {"position_ids", "[3, 2, 8]", "cp_size 1", "one chunk", "send [2, 8]"}},
      {"ThreeAxesOfPositionsInChunks",
       positions({3, 2, 8}).Cp(1),
       {"position_ids", "[3, 2, 8]", "one chunk", "send [2, 8]"},
       {.num_chunks = 2}},
      {"ThreeAxesOfPositionsOfOtherRows",
       positions({3, 1, 8}).Cp(1),
       {"position_ids", "[3, 1, 8]", "[2, 8]"}},
      {"ThreeAxesOfPositionsOfAnotherLength",
       positions({3, 2, 7}).Cp(1),
       {"position_ids", "[3, 2, 7]", "[2, 8]"}},
      {"RowsOfThreeAxesOfPositions",
       positions({2, 3, 8}).Cp(1),
       {"position_ids", "[2, 3, 8]", "[2, 8]"}},
      {"FourAxesOfPositions", positions({2, 8, 1, 1}), {"position_ids", "[2, 8, 1, 1]", "[2, 8]"}},
      {"OneAxisOfPositions", positions({16}), {"position_ids", "[16]", "[2, 8]"}},
      {"OneRowOfPositionsForTwo",
       positions({1, 8}),
       {"position_ids", "[1, 8]", "[2, 8]", "not shared between rows"}},
      {"PositionsOfOtherRows", positions({3, 8}), {"position_ids", "[3, 8]", "[2, 8]"}},
      {"PositionsOfAnotherLength", positions({2, 7}).Cp(1), {"position_ids", "[2, 7]", "[2, 8]"}},
      {"PositionsWithoutAxes", positions({}), {"position_ids", "[]", "[2, 8]"}},
  };
}

std::vector<Refusal> OfShapes() {
  const auto with = [](const char* name, DType dtype, std::vector<int64_t> dims) {
    return Good().Set({name, dtype, std::move(dims)});
  };
  std::vector<Refusal> refusals = {
      {"IdsOfOneAxis", with("input_ids", DType::kI64, {16}), {"input_ids", "[16]", "[B, S, ...]"}},
      {"LabelsOfOneAxis", with("labels", DType::kI64, {16}), {"labels", "[16]", "[2, 8, ...]"}},
      {"LabelsOfOtherRows", with("labels", DType::kI64, {3, 8}), {"labels", "[3, 8]", "[2, 8]"}},
      {"LabelsOfAnotherLength",
       with("labels", DType::kI64, {2, 7}).Cp(1),
       {"labels", "[2, 7]", "[2, 8]"}},
      {"ATensorWithoutAxesInChunks",
       with("temperature", DType::kF32, {}).Cp(1),
       {"temperature", "no axes", "2 chunks", "send it as a scalar"},
       {.num_chunks = 2}},
      {"ATensorWithoutAxesInChunksAtTwoRanks",
       with("temperature", DType::kF32, {}),
       {"temperature", "no axes", "2 chunks"},
       {.num_chunks = 2}},
  };
  for (const std::string name : {"seq_lens", "seq_lens_padded"}) {
    const std::string stream = "stream '" + name + "' ";
    const auto add = [&](const std::string& what, DType dtype, std::vector<int64_t> dims,
                         const std::string& way_out) {
      refusals.push_back({what + (name == "seq_lens" ? "Lengths" : "PaddedLengths"),
                          with(name.c_str(), dtype, dims),
                          {stream + std::string(DTypeName(dtype)) + DimsString(dims), way_out}});
    };
    add("Floating", DType::kF32, {2, 1}, "send i16, i32 or i64");
    add("HalfFloating", DType::kBF16, {2, 1}, "send i16, i32 or i64");
    add("Bool", DType::kBool, {2, 1}, "send i16, i32 or i64");
    add("OneByte", DType::kI8, {2, 1}, "which can hold -1000");
    add("UnsignedByte", DType::kU8, {2, 1}, "which can hold -1000");
    add("ThreeAxesOf", DType::kI64, {2, 1, 2}, "send [2, n]");
    add("OneAxisForTwoRowsOf", DType::kI64, {2}, "send [2, n]");
    add("NoAxisOf", DType::kI64, {}, "send [2, n]");
    add("OtherRowsOf", DType::kI64, {3, 2}, "send [2, n]");
    add("OneRowForTwoOf", DType::kI64, {1, 4}, "send [2, n]");
  }
  return refusals;
}

std::vector<Refusal> OfWhatIsThere() {
  std::vector<Refusal> refusals = {
      {"EmbeddingsAlone",
       Good().Remove("input_ids").Set({"inputs_embeds", DType::kF32, {2, 8, 4}}),
       {"no 'input_ids'", "thd"}},
      {"NoLabels", Good().Remove("labels"), {"no 'labels'", "thd"}},
      {"NoLabelsWithoutAMesh", Good().Remove("labels").Cp(std::nullopt), {"no 'labels'"}},
      {"NoLengthsAtTwoRanks",
       Good().Remove("seq_lens").Remove("seq_lens_padded"),  // case H9
       {"no 'seq_lens'", "cp_size 2"}},
      {"PaddedLengthsAloneAtTwoRanks", Good().Remove("seq_lens"), {"no 'seq_lens'", "cp_size 2"}},
      {"NoPositionsAtTwoRanks", Good().Remove("position_ids"), {"no 'position_ids'", "cp_size 2"}},
      {"ALossMask",
       Good().Set({"loss_mask", DType::kI64, {2, 8}}),
       {"'loss_mask'", "thd", "leave"}},
      {"AScalarLossMaskAtOneRank",
       Good().Cp(1).SetScalar("loss_mask", true),
       {"'loss_mask'", "thd"}},
      {"AnExtraStream",
       Good().Set({"weights", DType::kF32, {2, 8}}),
       {"weights", "thd", "contiguous"},
       {},
       {.padding_token_id = 0, .extra_streams = {{"weights"}}}},
      {"AnExtraStreamThatIsCutAnyway",
       Good(),
       {"labels", "thd"},
       {},
       {.padding_token_id = 0, .extra_streams = {{"labels"}}}},
      {"AMinimumOfThePaddedLength",
       Good(),
       {"min_padded_len 64", "thd"},
       {},
       {.padding_token_id = 0, .min_padded_len = 64}},
  };
  for (const char* name : {"input_ids", "labels", "position_ids", "seq_lens", "seq_lens_padded"}) {
    for (int64_t cp_size : {1, 2}) {
      refusals.push_back({std::string("AScalar_") + name + (cp_size == 1 ? "_AtOneRank" : ""),
                          Good().Cp(cp_size).SetScalar(name, int64_t{4}),
                          {std::string("'") + name + "' is a scalar", "tensor"}});
    }
  }
  return refusals;
}

std::vector<Refusal> OfPaddingByValue() {
  const auto bare = [](DType dtype, std::vector<int64_t> dims, std::vector<int64_t> ids) {
    PackedBatch batch(2, 4);
    batch.Cp(1).Set({"input_ids", dtype, std::move(dims)}, std::move(ids));
    return batch;
  };
  const std::vector<int64_t> ids = {5, 0, 6, 7, 8, 9, 0, 0};
  return {
      {"NoPadIdAndNoLengths",
       bare(DType::kI64, {2, 4}, ids),
       {"seq_lens", "padding_token_id", "not given", "set it"},
       {},
       {}},
      {"APadIdThatIsContentToo",
       bare(DType::kI64, {2, 4}, ids),  // case G9
       {"input_ids", "padding_token_id 0 at token 1", "6 at token 2", "send 'seq_lens'"}},
      {"APadIdThatIsContentTooInTheSecondChunk",
       bare(DType::kI16, {2, 4}, {5, 6, 0, 0, 8, 0, 9, 0}),
       {"input_ids", "padding_token_id 0 at token 5", "9 at token 6"},
       {.num_chunks = 2}},
      {"APadIdThatTheIdsCannotHold",
       bare(DType::kU8, {2, 4}, ids),
       {"'input_ids'", "-1", "u8"},
       {},
       {.padding_token_id = -1}},
      {"LargeIdsBehindThePadId",
       bare(DType::kI64, {2, 4}, {5, 0, 123456789, 7, 8, 9, 0, 0}),
       {"padding_token_id 0 at token 1", "123456789 at token 2"}},
      {"EmbeddingsWithoutLengths",
       bare(DType::kBF16, {2, 4, 16}, {}),
       {"input_ids", "bf16[2, 4, 16]", "send 'seq_lens' [2, n]"}},
      {"SeveralIdsOfATokenWithoutLengths",
       bare(DType::kI64, {2, 4, 3}, std::vector<int64_t>(24, 1)),
       {"input_ids", "i64[2, 4, 3]", "send 'seq_lens' [2, n]"}},
  };
}

std::vector<Refusal> OfIncomingBoundaries() {
  const auto with = [](std::vector<int64_t> boundaries) {
    const int64_t count = static_cast<int64_t>(boundaries.size());
    PackedBatch batch = GoodReal({{4, 4}, {8}});
    return batch.Set({"cu_seqlens_padded", DType::kI32, {count}}, std::move(boundaries));
  };
  const Parts parts = {"'cu_seqlens_padded'", "3 documents", "cp_size 2", "leave it out"};
  return {
      {"StaleBoundariesOfOtherDocuments", with({0, 4, 12, 16}), parts},
      {"StaleBoundariesOfAShorterStream", with({0, 4, 8, 12}), parts},
      {"StaleBoundariesOfFewerDocuments", with({0, 8, 16}), parts},
      {"StaleBoundariesWithAnUnusedPlace", with({0, 4, 8, 16, -1000}), parts},
      {"StaleBoundariesOfNothing", with({}), parts},
      {"StaleBoundariesOfFloats",
       GoodReal({{4, 4}, {8}}).Set({"cu_seqlens_padded", DType::kF32, {4}}), parts},
      {"StaleBoundariesOfChunks",
       with({0, 4, 8, 16}).Cp(1),
       {"'cu_seqlens_padded'", "2 chunks", "leave it out"},
       {.num_chunks = 2}},
  };
}

std::vector<Refusal> AllRefusals() {
  std::vector<Refusal> all;
  for (auto rows : {OfPieces, OfLengths, OfSums, OfTokens, OfPositions, OfShapes, OfWhatIsThere,
                    OfIncomingBoundaries, OfPaddingByValue}) {
    for (Refusal& refusal : rows()) all.push_back(std::move(refusal));
  }
  return all;
}

class ThdRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(ThdRefusals, NameTheStreamTheRowTheNumbersAndTheWayOut) {
  const Refusal& refusal = GetParam();
  const absl::StatusOr<ShardPlan> plan = refusal.batch.PlanBy(Thd(refusal.options, refusal.shared));
  ASSERT_FALSE(plan.ok()) << ToString(*plan);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
  for (const std::string& part : refusal.parts) {
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ThdRefusals, testing::ValuesIn(AllRefusals()),
                         [](const auto& info) { return info.param.name; });

TEST(ThdRefusalsTable, BeginsWithABatchThatIsAccepted) {
  for (std::optional<int64_t> cp_size : {std::optional<int64_t>(), {1}, {2}}) {
    const absl::StatusOr<ShardPlan> plan = Good().Cp(cp_size).PlanBy(Thd({}));
    EXPECT_TRUE(plan.ok()) << plan.status();
  }
}

}  // namespace
}  // namespace cpshard
