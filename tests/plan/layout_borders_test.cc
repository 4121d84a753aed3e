// What stands just inside the refusals of layout_refusals_test.cc, with the values that the
// contract gives (4.8 - 4.18, 7, 14). Values by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "tests/plan/generated.h"
#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Values = std::vector<std::vector<int64_t>>;

const SharedOptions kPadId{.padding_token_id = 0};

TensorSpec Of(const char* name, std::vector<int64_t> dims, DType dtype = DType::kI64) {
  return {name, dtype, std::move(dims)};
}

PackedBatch OneRow(int64_t length) { return PackedBatch(1, length); }

ShardPlan Planned(const Sharder& sharder, const PackedBatch& batch) {
  absl::StatusOr<ShardPlan> plan = batch.PlanBy(sharder);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ShardPlan();
}

Values ValuesOf(const ShardPlan& plan, const std::string& name) {
  return WrittenOut(StreamOf(plan, name).value);
}

std::vector<int64_t> LiteralOf(const ShardPlan& plan, const std::string& name) {
  const StreamPlan stream = StreamOf(plan, name);
  const Literal* literal = std::get_if<Literal>(&stream.value.from);
  if (literal == nullptr) ADD_FAILURE() << name;
  return literal == nullptr ? std::vector<int64_t>() : literal->values;
}

std::vector<std::string> PlacementOf(const ShardPlan& plan) {
  std::vector<std::string> rows;
  for (const IndexMap& row : plan.chunks.at(0).placement) rows.push_back(row.ToString());
  return rows;
}

Scalar ScalarOf(const ShardPlan& plan, const std::string& name, int64_t rank) {
  for (const ScalarEntry& entry : ScalarsOf(plan, rank)) {
    if (entry.name == name) return entry.value;
  }
  ADD_FAILURE() << "no scalar " << name;
  return {};
}

// Shapes that are taken as they are (contract 14) -------------------------------------------------

struct Accepted {
  std::string name;
  Sharder sharder;
  PackedBatch batch;
  int64_t padded_len;
};

void PrintTo(const Accepted& accepted, std::ostream* out) { *out << accepted.name; }

std::vector<Accepted> AllAccepted() {
  const SharedOptions none;
  std::vector<Accepted> all;
  const auto add = [&](const std::string& name, const Sharder& sharder, int64_t divisor) {
    const auto up = [&](int64_t length) { return (length + divisor - 1) / divisor * divisor; };
    all.push_back({name + "_NoRows", sharder, PackedBatch(0, 8).Cp(4), up(8)});
    all.push_back({name + "_NoColumns", sharder, PackedBatch(1, 0).Cp(4), 0});
    all.push_back({name + "_MoreRanksThanColumns", sharder, PackedBatch(1, 3).Cp(4), up(3)});
    all.push_back({name + "_OneColumn", sharder, PackedBatch(1, 1).Cp(4), up(1)});
  };
  add("deepseek_v4", DeepseekV4({}, kPadId), 8);
  add("deepseek_v41", DeepseekV41({}, none), 8);
  add("gemma4", Gemma4(none), 8);
  add("kimi", Kimi(KimiVariant::kLinear, kPadId), 4);
  add("kimi_k3", Kimi(KimiVariant::kK3, kPadId), 4);
  add("glm5_next", Glm5Next(Primary::kCut, kPadId), 4);
  add("glm5_next_full", Glm5Next(Primary::kLeaveFull, none), 4);
  add("qwen3_8", Qwen38({}, kPadId), 16);
  std::erase_if(all, [](const Accepted& row) { return row.name == "qwen3_8_NoColumns"; });
  add("block_diagonal", BlockDiagonal(Primary::kCut, kPadId), 8);
  std::erase_if(all, [](const Accepted& row) { return row.name == "block_diagonal_NoRows"; });
  const auto unpadded = [&](const char* name, const Sharder& sharder) {
    all.push_back({std::string(name) + "_WithoutAMesh", sharder, OneRow(7).Cp(std::nullopt), 7});
  };
  unpadded("kimi", Kimi(KimiVariant::kLinear, none));
  unpadded("glm5_next", Glm5Next(Primary::kCut, none));
  unpadded("deepseek_v41", DeepseekV41({}, none));
  // One rank of a mesh.
  all.push_back({"kimi_OneRank", Kimi(KimiVariant::kLinear, none), OneRow(7).Cp(1), 7});
  all.push_back(
      {"block_diagonal_OneRank", BlockDiagonal(Primary::kCut, none), PackedBatch(3, 7).Cp(1), 7});
  all.push_back({"gemma4_OneRank", Gemma4(none), OneRow(7).Cp(1), 8});
  all.push_back({"deepseek_v41_OneRank", DeepseekV41({}, none), OneRow(7).Cp(1), 8});
  all.push_back({"magi_OneRank", Magi({}, none), OneRow(25).Cp(1), 28});  // k = 4
  all.push_back({"magi_AsManyTokensAsRanks", Magi({}, none), OneRow(4).Cp(4), 4});
  return all;
}

class LayoutBorders : public testing::TestWithParam<Accepted> {};

TEST_P(LayoutBorders, AreTakenAndPaddedAsTheLayoutPads) {
  const Accepted& accepted = GetParam();
  const ShardPlan plan = Planned(accepted.sharder, accepted.batch);
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].padded_len, accepted.padded_len);
}

INSTANTIATE_TEST_SUITE_P(Table, LayoutBorders, testing::ValuesIn(AllAccepted()),
                         [](const auto& info) { return info.param.name; });

// DeepSeek V4, contract 4.8 -----------------------------------------------------------------------

// m = 2: documents of 3, 0 and 2 tokens become 4, 0 and 2; the row is a multiple of 2 * 2.
TEST(DeepseekV4Borders, PackedRowsAreLaidOutAnew) {
  PackedBatch batch(2, 8);
  batch.Real({{3, 0, 2}, {1}}).Padded({{4, 1, 2}, {1}});
  const ShardPlan plan = Planned(DeepseekV4({}, kPadId), batch);
  EXPECT_THAT(PlacementOf(plan), ElementsAre("0+3 .+1 5+2 .+2", "0+1 .+7"));
  EXPECT_EQ(ValuesOf(plan, "packed_seq_ids"),
            (Values{{1, 1, 1, 1, 3, 3, 0, 0}, {1, 1, 0, 0, 0, 0, 0, 0}}));
  EXPECT_EQ(ValuesOf(plan, "position_ids"),
            (Values{{0, 1, 2, 3, 0, 1, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0}}));
  EXPECT_EQ(ValuesOf(plan, "padding_mask"),
            (Values{{0, 0, 0, 1, 0, 0, 1, 1}, {0, 1, 1, 1, 1, 1, 1, 1}}));
  EXPECT_THAT(LiteralOf(plan, "seq_lens"), ElementsAre(3, 0, 2, 1, -1000, -1000));
  EXPECT_THAT(LiteralOf(plan, "seq_lens_padded"), ElementsAre(4, 0, 2, 2, -1000, -1000));
  EXPECT_EQ(ScalarOf(plan, "qkv_format", 0), Scalar(std::string("thd")));
  EXPECT_EQ(plan.chunks[0].report, (Report{.padded_seq_len = 8, .stream_positions = true}));
}

// T45: a row shrinks where its documents are short; columns of no document are dropped.
TEST(DeepseekV4Borders, ARowMayShrink) {
  const ShardPlan plan = Planned(DeepseekV4({}, {}), OneRow(64).Real({{4}}));
  EXPECT_THAT(PlacementOf(plan), ElementsAre("0+4"));  // nothing is filled: no pad id is needed
}

// T40: an unused place takes no id, an empty document takes one.
TEST(DeepseekV4Borders, AnUnusedPlaceTakesNoId) {
  const ShardPlan plan = Planned(DeepseekV4({}, kPadId), OneRow(4).Real({{kUnused, 2, 0, 2}}));
  EXPECT_EQ(ValuesOf(plan, "packed_seq_ids"), (Values{{1, 1, 3, 3}}));
}

TEST(DeepseekV4Borders, LengthsOfOneRowMayHaveOneAxis) {
  const ShardPlan plan =
      Planned(DeepseekV4({}, kPadId), OneRow(4).Set(Of("seq_lens", {2}), {2, 2}));
  EXPECT_EQ(ValuesOf(plan, "packed_seq_ids"), (Values{{1, 1, 2, 2}}));
}

// D14: it stands where the maximum of the world would, and is padded on.
TEST(DeepseekV4Borders, AMinimumOfThePaddedLengthIsAMinimum) {
  const auto padded = [](int64_t minimum) {
    return Planned(DeepseekV4({}, {.padding_token_id = 0, .min_padded_len = minimum}),
                   OneRow(8).Real({{8}}))
        .chunks[0]
        .padded_len;
  };
  EXPECT_EQ(padded(INT64_MIN), 8);
  EXPECT_EQ(padded(8), 8);
  EXPECT_EQ(padded(9), 12);
  EXPECT_EQ(padded(12), 12);
}

// At cp_size 1 nothing is padded, cut or read, whatever it holds; there is no layout.
TEST(DeepseekV4Borders, OneRankGetsTheBatchAsItIs) {
  PackedBatch batch(2, 8);
  batch.Cp(1).Real({{-7}, {99}}).Set(Of("labels", {3}, DType::kU8));
  const ShardPlan plan = Planned(DeepseekV4({.pad_multiple = 64}, {}), batch);
  EXPECT_TRUE(plan.chunks.empty());
  EXPECT_EQ(StreamOf(plan, "labels").extent, Extent::kWhole);
  EXPECT_TRUE(HasStream(plan, "seq_lens"));
  EXPECT_EQ(ScalarOf(plan, "qkv_format", 0), Scalar(std::string("thd")));
  batch.Remove("labels").Set(Of("loss_mask", {2, 8}, DType::kBool));
  const StreamPlan labels = StreamOf(Planned(DeepseekV4({}, {}), batch), "labels");
  EXPECT_EQ(labels.value, Expression{ViewOf{"loss_mask"}});
}

// Positions and masks that came in are replaced, so they may have any shape (D5).
TEST(DeepseekV4Borders, WhatIsRebuiltIsNotLookedAt) {
  PackedBatch batch = OneRow(4).Real({{4}});
  batch.Set(Of("position_ids", {9})).Set(Of("padding_mask", {7})).Set(Of("packed_seq_ids", {1}));
  batch.Set(Of("attention_mask", {3}));  // not converted where there is a padding_mask
  const ShardPlan plan = Planned(DeepseekV4({}, kPadId), batch);
  EXPECT_EQ(ValuesOf(plan, "position_ids"), (Values{{0, 1, 2, 3}}));
  EXPECT_EQ(StreamOf(plan, "packed_seq_ids").dims, (std::vector<int64_t>{1, 4}));
}

// DeepSeek V4.1, contract 4.9 ---------------------------------------------------------------------

// a = 4: ids are those of the entries, absent ones count; pads have neither id nor position.
TEST(DeepseekV41Borders, PackedRowsAreAlignedAndNeverShrink) {
  PackedBatch batch(2, 8);
  batch.Real({{3, kUnused, 2}, {0, kUnused, 0}}).Padded({{4, 0, 3}, {0, 0, kUnused}});
  const ShardPlan plan = Planned(DeepseekV41({.packed_alignment = 4}, {}), batch);
  EXPECT_THAT(PlacementOf(plan), ElementsAre("0+3 .+1 4+2 .+2", ".+8"));
  EXPECT_EQ(ValuesOf(plan, "packed_seq_ids"),
            (Values{{1, 1, 1, 0, 3, 3, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}}));
  EXPECT_EQ(ValuesOf(plan, "position_ids"),
            (Values{{0, 1, 2, 0, 0, 1, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}}));
  EXPECT_EQ(ValuesOf(plan, "attention_mask"),
            (Values{{1, 1, 1, 0, 1, 1, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}}));
  for (const char* gone : {"seq_lens", "seq_lens_padded", "padding_mask"}) {
    EXPECT_FALSE(HasStream(plan, gone)) << gone;
  }
  EXPECT_EQ(StreamOf(plan, "input_ids").fill, (Fill{Fill::Kind::kConstant, Element{0}}));  // T23
}

// Lengths and spans of one row, one of them without an axis for it.
TEST(DeepseekV41Borders, LengthsOfOneRowMayHaveOneAxis) {
  for (const auto& [real, padded] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
           {{2}, {1, 2}}, {{1, 2}, {2}}, {{2}, {2}}}) {
    PackedBatch batch = OneRow(4);
    batch.Set(Of("seq_lens", real), {1, 2}).Set(Of("seq_lens_padded", padded), {2, 2});
    EXPECT_EQ(ValuesOf(Planned(DeepseekV41({}, kPadId), batch), "packed_seq_ids"),
              (Values{{1, 2, 2, 0}}));
  }
}

// It is laid out first, then takes the labels' place (4.9 steps 3 and 5, 4.2 step 4): 0 in the
// padding of the layout, -100 in what is appended.
TEST(DeepseekV41Borders, ALossMaskStandsInForMissingLabelsOfPackedRows) {
  PackedBatch batch = OneRow(5).Real({{3}}).Remove("labels");
  batch.Set(Of("loss_mask", {1, 5}, DType::kF32));
  const auto labels = [&](int64_t alignment) {
    const ShardPlan plan = Planned(DeepseekV41({.packed_alignment = alignment}, kPadId), batch);
    EXPECT_FALSE(HasStream(plan, "loss_mask"));
    EXPECT_EQ(plan.notices.size(), 1u);  // for a loss counts label 0
    return StreamOf(plan, "labels");
  };
  EXPECT_EQ(labels(6).value, Expression{ViewOf{"loss_mask"}});
  EXPECT_EQ(labels(6).dtype, DType::kF32);
  EXPECT_EQ(labels(6).fill, (Fill{Fill::Kind::kConstant, Element{0}, Fill::Tail{6, -100}}));
  EXPECT_EQ(labels(8).fill, (Fill{Fill::Kind::kConstant, Element{0}}));  // nothing is appended
  batch.Set(Of("loss_mask", {1, 5}, DType::kBool));
  EXPECT_EQ(labels(8).dtype, DType::kBool);  // so that nothing needs -100
  batch.Cp(std::nullopt);
  const ShardPlan alone = Planned(DeepseekV41({}, kPadId), batch);
  EXPECT_FALSE(HasStream(alone, "labels"));
  EXPECT_EQ(StreamOf(alone, "loss_mask").fill.value, Element{0});
}

// Rows of 5, then padding for the group, over which positions go on.
TEST(DeepseekV41Borders, PaddingForTheGroupContinuesThePositionsOfTheRow) {
  const ShardPlan plan = Planned(DeepseekV41({}, kPadId), OneRow(5).Real({{5}}));
  EXPECT_EQ(ValuesOf(plan, "position_ids"), (Values{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(ValuesOf(plan, "packed_seq_ids"), (Values{{1, 1, 1, 1, 1, 0, 0, 0}}));
  const ShardPlan pads = Planned(DeepseekV41({}, kPadId), OneRow(5).Real({{4}}));
  EXPECT_EQ(ValuesOf(pads, "position_ids"), (Values{{0, 1, 2, 3, 0, 1, 2, 3}}));
}

// Without a mesh rows are aligned, not cut, and labels may be missing.
TEST(DeepseekV41Borders, WithoutAMeshRowsAreAlignedAlone) {
  PackedBatch batch = OneRow(5).Cp(std::nullopt).Real({{5}}).Remove("labels");
  const ShardPlan plan = Planned(DeepseekV41({.packed_alignment = 3}, {}), batch);
  EXPECT_THAT(PlacementOf(plan), ElementsAre("0+5 .+1"));
  EXPECT_EQ(plan.chunks[0].partition, std::vector<IndexMap>{IndexMap::Identity(6)});
  EXPECT_EQ(
      plan.chunks[0].report,
      (Report{.padded_seq_len = 6, .stream_positions = true, .indices = Report::Indices::kI64}));
}

TEST(DeepseekV41Borders, AMinimumOfThePaddedLengthIsAlignedToo) {
  const auto padded = [](int64_t minimum) {
    return Planned(DeepseekV41({.packed_alignment = 4}, {.min_padded_len = minimum}),
                   OneRow(8).Cp(std::nullopt).Real({{8}}))
        .chunks[0]
        .padded_len;
  };
  EXPECT_EQ(padded(INT64_MIN), 8);
  EXPECT_EQ(padded(9), 12);
}

// A single document fits 64 bits; the bytes that it would take are refused with the alignment.
TEST(DeepseekV41Borders, AHugeAlignmentIsRefusedBeforeAnythingIsAllocated) {
  const int64_t huge = int64_t{1} << 62;
  const ShardPlan plan =
      Planned(DeepseekV41({.packed_alignment = huge}, kPadId), OneRow(8).Real({{8}}));
  const absl::Status status = CheckedOutputBytes(plan, std::vector<int64_t>{0}, Limits{}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("packed_alignment 4611686018427387904"));
}

// What stands for "no token" in attention_mask is the mask turned round, bit by bit (T16).
TEST(DeepseekV41Borders, UnpackedRowsTurnTheirPaddingMaskRound) {
  const auto mask = [](DType dtype) {
    return StreamOf(
        Planned(DeepseekV41({}, kPadId), OneRow(6).Set(Of("padding_mask", {1, 6}, dtype))),
        "attention_mask");
  };
  EXPECT_EQ(mask(DType::kBool).value.op, Op::kBitwiseNot);
  EXPECT_EQ(mask(DType::kBool).fill.value, Element{0});
  EXPECT_EQ(mask(DType::kI8).fill.value, Element{~uint64_t{1}});
  EXPECT_EQ(mask(DType::kU8).fill.value, Element{0xfe});
  EXPECT_EQ(mask(DType::kI64).fill.value, Element{~uint64_t{1}});
  EXPECT_EQ(ValuesOf(Planned(DeepseekV41({}, kPadId), OneRow(6)), "attention_mask"),
            (Values{{1, 1, 1, 1, 1, 1}}));
}

// Gemma4, contract 4.10 ---------------------------------------------------------------------------

TEST(Gemma4Borders, TheMapIsWhatIsNoPadding) {
  const auto map = [](const PackedBatch& batch) {
    return StreamOf(Planned(Gemma4(), batch), "_packed_seq_ids");
  };
  EXPECT_EQ(WrittenOut(map(OneRow(6)).value), (Values{{1, 1, 1, 1, 1, 1}}));
  const StreamPlan padding = map(OneRow(6).Set(Of("padding_mask", {1, 6}, DType::kBool)));
  EXPECT_EQ(padding.value, (Expression{ViewOf{"padding_mask"}, std::nullopt, Op::kIsZero}));
  EXPECT_EQ(padding.dtype, DType::kI64);
  EXPECT_EQ(padding.fill, (Fill{Fill::Kind::kConstant, Element{0}}));
  const StreamPlan attention = map(OneRow(6).Set(Of("attention_mask", {1, 6})));
  EXPECT_EQ(attention.value, (Expression{ViewOf{"attention_mask"}, std::nullopt, Op::kNotZero}));
  const StreamPlan additive = map(OneRow(6).Set(Of("attention_mask", {1, 2, 6, 6}, DType::kF32)));
  EXPECT_EQ(additive.value.op, Op::kIsZero);
}

TEST(Gemma4Borders, AMapThatIsThereIsCutAsItIs) {
  PackedBatch batch = OneRow(6).Set(Of("_packed_seq_ids", {1, 6}, DType::kI32));
  const StreamPlan map = StreamOf(Planned(Gemma4(), batch), "_packed_seq_ids");
  EXPECT_EQ(map.value, Expression{ViewOf{"_packed_seq_ids"}});
  EXPECT_EQ(map.dtype, DType::kI32);
  const SharedOptions callers{.extra_streams = {{"_packed_seq_ids", 1, int64_t{5}}}};
  EXPECT_EQ(StreamOf(Planned(Gemma4(callers), batch), "_packed_seq_ids").fill.value, Element{5});
}

// The map is made before extra streams are looked at, so that the caller's word for it holds.
TEST(Gemma4Borders, AMapThatIsMadeIsCutAsTheCallerDeclaresIt) {
  for (const int64_t axis : {1, -1}) {
    const SharedOptions callers{.extra_streams = {{"_packed_seq_ids", axis, int64_t{5}}}};
    const StreamPlan map = StreamOf(Planned(Gemma4(callers), PackedBatch(2, 6)), "_packed_seq_ids");
    EXPECT_EQ(WrittenOut(map.value), (Values{{1, 1, 1, 1, 1, 1}}));
    EXPECT_EQ(map.axis, 1);
    EXPECT_EQ(map.fill, (Fill{Fill::Kind::kConstant, Element{5}}));
    const PackedBatch masked = OneRow(6).Set(Of("padding_mask", {1, 6}, DType::kBool));
    EXPECT_EQ(StreamOf(Planned(Gemma4(callers), masked), "_packed_seq_ids").fill.value, Element{5});
  }
}

TEST(Gemma4Borders, ThePrimaryAndItsCompanionsStayWhole) {
  PackedBatch batch = OneRow(6).Set(Of("mm_token_type_ids", {1, 6}));
  const ShardPlan plan = Planned(Gemma4(), batch);
  EXPECT_EQ(StreamOf(plan, "input_ids").extent, Extent::kWhole);
  EXPECT_EQ(StreamOf(plan, "mm_token_type_ids").extent, Extent::kWhole);
  EXPECT_EQ(StreamOf(plan, "labels").extent, Extent::kLocal);
}

// Kimi, contract 4.12, and GLM-5-next, 4.16 -------------------------------------------------------

// Divisor 3, not 6; the map is whole, positions go on over the padding.
TEST(KimiBorders, TheMapIsWholeAndEveryRankKnowsWhereItBegins) {
  const PackedBatch batch = OneRow(7).Cp(3).Real({{3, 3}});
  for (const auto& [variant, prefix] : std::vector<std::pair<KimiVariant, std::string>>{
           {KimiVariant::kK3, "kimi_packed_"}, {KimiVariant::kLinear, "kimi_packed_context."}}) {
    const ShardPlan plan = Planned(Kimi(variant, kPadId), batch);
    const StreamPlan ids = StreamOf(plan, prefix + "doc_ids");
    EXPECT_EQ(WrittenOut(ids.value), (Values{{1, 1, 1, 2, 2, 2, 0}}));
    EXPECT_EQ(ids.dtype, DType::kI32);
    EXPECT_EQ(OutputSpec(plan, ids, 1).dims, (std::vector<int64_t>{1, 9}));
    EXPECT_EQ(ValuesOf(plan, "padding_mask"), (Values{{0, 0, 0, 0, 0, 0, 1}}));
    EXPECT_EQ(StreamOf(plan, "position_ids").fill.kind, Fill::Kind::kContinue);
    EXPECT_EQ(ScalarOf(plan, prefix + "seq_start", 2), Scalar(int64_t{6}));
    EXPECT_EQ(ScalarOf(plan, prefix + "cp_size", 0), Scalar(int64_t{3}));
    EXPECT_FALSE(HasStream(plan, "seq_lens"));
  }
}

// T19: a padding mask that is there stays, though the map says otherwise.
TEST(KimiBorders, APaddingMaskThatIsThereStaysWhateverTheMapSays) {
  PackedBatch batch = OneRow(6).Real({{2}}).Set(Of("padding_mask", {1, 6}, DType::kI32));
  const ShardPlan plan = Planned(Kimi(KimiVariant::kK3, kPadId), batch);
  EXPECT_EQ(StreamOf(plan, "padding_mask").value, Expression{ViewOf{"padding_mask"}});
  EXPECT_EQ(ValuesOf(plan, "kimi_packed_doc_ids"), (Values{{1, 1, 0, 0, 0, 0}}));
}

TEST(KimiBorders, LabelsMayBeMissingAndALossMaskDoesNotStandIn) {
  PackedBatch batch = OneRow(6).Remove("labels").Set(Of("loss_mask", {1, 6}));
  const ShardPlan plan = Planned(Kimi(KimiVariant::kK3, kPadId), batch);
  EXPECT_FALSE(HasStream(plan, "labels"));
  EXPECT_EQ(StreamOf(plan, "loss_mask").extent, Extent::kLocal);
}

// D15: the Notice travels with the plan.
TEST(KimiBorders, DocumentsWithPaddingAreReported) {
  const PackedBatch padded = OneRow(6).Real({{2, 3}}).Padded({{3, 3}});
  for (const Sharder& sharder :
       {Kimi(KimiVariant::kLinear, kPadId), Glm5Next(Primary::kCut, kPadId)}) {
    const ShardPlan plan = Planned(sharder, padded);
    ASSERT_EQ(plan.notices.size(), 1u);
    EXPECT_EQ(plan.notices[0].code, "document_padding_counts_as_real");
    EXPECT_TRUE(Planned(sharder, OneRow(6).Real({{2, 3}})).notices.empty());
  }
}

TEST(Glm5NextBorders, StreamsOfOneAxisAreOneRow) {
  PackedBatch batch = OneRow(7);
  batch.Set(Of("input_ids", {7})).Set(Of("labels", {7})).Set(Of("position_ids", {7}));
  batch.Set(Of("_packed_seq_ids", {7}));
  const ShardPlan plan = Planned(Glm5Next(Primary::kCut, kPadId), batch);
  for (const char* name : {"input_ids", "labels", "position_ids"}) {
    EXPECT_EQ(OutputSpec(plan, StreamOf(plan, name), 0).dims, (std::vector<int64_t>{1, 4})) << name;
  }
  EXPECT_EQ(StreamOf(plan, "glm5_next_packed_context.doc_ids").dims, (std::vector<int64_t>{1, 7}));
  EXPECT_EQ(ScalarOf(plan, "glm5_next_packed_context.original_seq_len", 1), Scalar(int64_t{7}));
}

TEST(Glm5NextBorders, OneRowOfPositionsStaysOneRowAndIsPaddedWithZero) {
  PackedBatch batch = PackedBatch(3, 7).Set(Of("position_ids", {1, 7}));
  const ShardPlan plan = Planned(Glm5Next(Primary::kLeaveFull), batch);
  const StreamPlan positions = StreamOf(plan, "position_ids");
  EXPECT_EQ(OutputSpec(plan, positions, 1).dims, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(positions.fill, (Fill{Fill::Kind::kConstant, Element{0}}));
  EXPECT_EQ(StreamOf(plan, "input_ids").extent, Extent::kWhole);
}

// Three axes are refused (D5), since axis 1 would be that of rows; more are [B, S, ...].
TEST(Glm5NextBorders, PositionsOfMoreThanThreeAxesAreCutAsTokensAre) {
  PackedBatch batch = PackedBatch(3, 7).Set(Of("position_ids", {3, 7, 2, 1}, DType::kI32));
  const ShardPlan plan = Planned(Glm5Next(Primary::kLeaveFull), batch);
  const StreamPlan positions = StreamOf(plan, "position_ids");
  EXPECT_EQ(OutputSpec(plan, positions, 1), Of("position_ids", {3, 4, 2, 1}, DType::kI32));
  EXPECT_EQ(positions.fill, (Fill{Fill::Kind::kConstant, Element{0}}));
}

TEST(Glm5NextBorders, BoundariesMakeOneRowOfTheMapAndOfTheMask) {
  PackedBatch batch = PackedBatch(2, 6).Set(Of("cu_seqlens", {3}, DType::kI32), {0, 2, 5});
  const ShardPlan plan = Planned(Glm5Next(Primary::kCut, kPadId), batch);
  EXPECT_EQ(ValuesOf(plan, "glm5_next_packed_context.doc_ids"), (Values{{1, 1, 2, 2, 2, 0}}));
  EXPECT_EQ(StreamOf(plan, "padding_mask").dims, (std::vector<int64_t>{1, 6}));
  EXPECT_FALSE(HasStream(plan, "cu_seqlens"));
}

// Qwen3.8-Flash-Next, contract 4.18 ---------------------------------------------------------------

// What the real lengths leave of the row is a segment of its own.
TEST(Qwen38Borders, LengthsBecomeBoundariesToTheEndOfTheRow) {
  const auto boundaries = [](const PackedBatch& batch) {
    return LiteralOf(Planned(Qwen38({}, kPadId), batch),
                     "_qwen3_8_flash_next_cp_context.global_cu_seqlens");
  };
  EXPECT_THAT(boundaries(OneRow(8).Real({{2, kUnused, 3}})), ElementsAre(0, 2, 5, 8));
  EXPECT_THAT(boundaries(OneRow(8).Real({{2, 6}}).Padded({{99, 99}})), ElementsAre(0, 2, 8));
  PackedBatch given = OneRow(8).Real({{-5}});  // not looked at beside cu_seqlens
  given.Set(Of("cu_seqlens", {1, 3}, DType::kI32), {0, 3, 8});
  EXPECT_THAT(boundaries(given), ElementsAre(0, 3, 8));
}

TEST(Qwen38Borders, TheRecordHoldsTheWholeRowAndTheSliceOfTheRank) {
  const ShardPlan plan = Planned(Qwen38({}, {.padding_token_id = 7}), PackedBatch(2, 6));
  const std::string record = "_qwen3_8_flash_next_cp_context.";
  const StreamPlan ids = StreamOf(plan, record + "global_input_ids");
  EXPECT_EQ(OutputSpec(plan, ids, 1).dims, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(ids.fill, (Fill{Fill::Kind::kConstant, Element{7}}));
  const StreamPlan mask = StreamOf(plan, record + "global_padding_mask");
  EXPECT_EQ(mask.extent, Extent::kPadded);
  EXPECT_EQ(mask.fill, (Fill{Fill::Kind::kConstant, Element{1}}));
  EXPECT_FALSE(HasStream(plan, record + "global_cu_seqlens"));
  EXPECT_EQ(ScalarOf(plan, record + "local_sequence_start", 1), Scalar(int64_t{4}));
  EXPECT_EQ(ScalarOf(plan, record + "local_sequence_length", 1), Scalar(int64_t{4}));
  EXPECT_EQ(ScalarOf(plan, record + "rank", 1), Scalar(int64_t{1}));
  EXPECT_EQ(ScalarOf(plan, record + "size", 1), Scalar(int64_t{2}));
  EXPECT_EQ(StreamOf(plan, "padding_mask").extent, Extent::kLocal);
}

// Masks of zeros and ones of any dtype, all of one kind too.
TEST(Qwen38Borders, MasksOfZerosAndOnesMayHaveAnyDType) {
  const auto padding = [](PackedBatch batch) {
    return StreamOf(Planned(Qwen38({}, kPadId), batch), "padding_mask").value;
  };
  const int64_t half_one = 0x3c00, bf16_one = 0x3f80, float_one = 0x3f800000;
  const Expression of_attention{ViewOf{"attention_mask"}, std::nullopt, Op::kIsZero};
  for (const auto& [dtype, one] :
       std::vector<std::pair<DType, int64_t>>{{DType::kBool, 1},
                                              {DType::kU8, 1},
                                              {DType::kI64, 1},
                                              {DType::kF16, half_one},
                                              {DType::kBF16, bf16_one},
                                              {DType::kF32, float_one}}) {
    EXPECT_EQ(padding(OneRow(3).Set(Of("attention_mask", {1, 3}, dtype), {one, one, 0})),
              of_attention);
    EXPECT_EQ(padding(OneRow(3).Set(Of("attention_mask", {1, 3}, dtype), {0, 0, 0})), of_attention);
  }
  PackedBatch both = OneRow(3).Set(Of("attention_mask", {1, 3}), {1, 1, 0});
  both.Set(Of("padding_mask", {1, 3}, DType::kBool), {0, 0, 1});
  EXPECT_EQ(padding(both), Expression{ViewOf{"padding_mask"}});
  both.Set(Of("padding_mask", {1, 3}), {0, 0, 1});
  EXPECT_EQ(padding(both), (Expression{ViewOf{"padding_mask"}, std::nullopt, Op::kNotZero}));
}

// Block-diagonal, contract 4.13 -------------------------------------------------------------------

TEST(BlockDiagonalBorders, PaddingIsWhereTheIdIsZero) {
  const auto mask = [](PackedBatch batch) {
    return StreamOf(Planned(BlockDiagonal(Primary::kCut, kPadId), batch), "padding_mask");
  };
  EXPECT_EQ(WrittenOut(mask(OneRow(6)).value), (Values{{0, 0, 0, 0, 0, 0}}));
  PackedBatch batch = OneRow(6).Set(Of("padding_mask", {9}));  // overwritten (T17)
  for (DType dtype : {DType::kBool, DType::kI64}) {            // D6
    const StreamPlan diagonal = mask(batch.Set(Of("attention_mask", {1, 1, 6, 6}, dtype)));
    EXPECT_EQ(diagonal.value, (Expression{ViewOf{"attention_mask", ViewOf::How::kHeadZeroDiagonal},
                                          DType::kI64, Op::kIsZero}));
  }
  EXPECT_EQ(mask(batch.Set(Of("attention_mask", {1, 6}, DType::kF32))).value,
            (Expression{ViewOf{"attention_mask"}, DType::kI64, Op::kIsZero}));
  EXPECT_EQ(mask(batch.Set(Of("_packed_seq_ids", {1, 6}))).value,
            (Expression{ViewOf{"_packed_seq_ids"}, DType::kI64, Op::kIsZero}));
}

// Six tokens on two ranks of four slots: two of the three visual tokens are rank 0's.
TEST(BlockDiagonalBorders, VisualRowsGoWithTheTokensThatTheyBelongTo) {
  PackedBatch batch =
      OneRow(6).Set(Of("visual_pos_masks", {1, 6}, DType::kBool), {0, 1, 1, 0, 1, 0});
  batch.Set(Of("_deepstack_visual_embeds.0", {3, 8}, DType::kF32));
  const ShardPlan plan = Planned(BlockDiagonal(Primary::kCut, kPadId), batch);
  const StreamPlan rows = StreamOf(plan, "_deepstack_visual_embeds.0");
  EXPECT_EQ(OutputSpec(plan, rows, 0).dims, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(OutputSpec(plan, rows, 1).dims, (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(LayoutsOf(plan, rows)[0].partition[1].ToString(), "2+1");
  EXPECT_EQ(StreamOf(plan, "visual_pos_masks").extent, Extent::kLocal);
}

TEST(BlockDiagonalBorders, VisualRowsWithoutAMaskStayWhole) {
  PackedBatch batch = OneRow(6).Set(Of("_deepstack_visual_embeds.0", {3, 8}, DType::kF32));
  const ShardPlan plan = Planned(BlockDiagonal(Primary::kCut, kPadId), batch);
  EXPECT_EQ(StreamOf(plan, "_deepstack_visual_embeds.0").extent, Extent::kWhole);
}

// T8: floats are filled with 0 whatever their name.
TEST(BlockDiagonalBorders, FloatingLabelsAreFilledWithZero) {
  PackedBatch batch = OneRow(6).Set(Of("labels", {1, 6}, DType::kF32));
  EXPECT_EQ(StreamOf(Planned(BlockDiagonal(Primary::kCut, kPadId), batch), "labels").fill.value,
            Element{0});
}

TEST(BlockDiagonalBorders, OneRankGetsTheBatchAsItIs) {
  PackedBatch batch = PackedBatch(3, 7).Cp(1).Set(Of("attention_mask", {2, 1, 9, 9}, DType::kF32));
  batch.Set(Of("loss_mask", {3, 7}));
  const ShardPlan plan = Planned(BlockDiagonal(Primary::kCut), batch);
  for (const char* name : {"attention_mask", "loss_mask", "input_ids"}) {
    EXPECT_EQ(StreamOf(plan, name).extent, Extent::kWhole) << name;
  }
  EXPECT_FALSE(HasStream(plan, "padding_mask"));
}

// GLM DSA, contract 4.11, and MiMo, 4.17 ----------------------------------------------------------

TEST(GlmDsaBorders, TheLastRowMayBeShortAtEverySize) {
  for (int64_t cp_size : {1, 2, 4}) {
    const ShardPlan plan = Planned(GlmDsa({}, kPadId), OneRow(8).Cp(cp_size).Real({{3, 2}}));
    EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 3, 5));
    EXPECT_EQ(ValuesOf(plan, "padding_mask"), (Values{{0, 0, 0, 0, 0, 1, 1, 1}}));
    EXPECT_EQ(plan.chunks[0].LocalLen(0), 8 / cp_size);
  }
}

// Contract 5.5: boundaries that came in and are not made anew survive, as i32.
TEST(GlmDsaBorders, BoundariesThatCameInStayUnlessTheyAreMade) {
  PackedBatch batch = OneRow(8).Real({{3, 5}}).Set(Of("cu_seqlens_padded", {3}), {0, 4, 8});
  const StreamPlan kept = StreamOf(Planned(GlmDsa({}, kPadId), batch), "cu_seqlens_padded");
  EXPECT_EQ(kept.value, Expression{ViewOf{"cu_seqlens_padded"}});
  EXPECT_EQ(kept.dtype, DType::kI32);
  batch.Real({{2, 3}}).Padded({{4, 4}});
  EXPECT_THAT(LiteralOf(Planned(GlmDsa({}, kPadId), batch), "cu_seqlens_padded"),
              ElementsAre(0, 4, 8));
}

TEST(GlmDsaBorders, NothingButItsOwnEntriesComesOut) {
  PackedBatch batch = OneRow(8).Real({{8}}).Set(Of("pixel_values", {3}, DType::kF32));
  batch.SetScalar("note", std::string("x"));
  const ShardPlan plan = Planned(GlmDsa({}, kPadId), batch);
  EXPECT_FALSE(HasStream(plan, "pixel_values"));
  EXPECT_EQ(ScalarsOf(plan, 1), (std::vector<ScalarEntry>{{"qkv_format", std::string("thd")},
                                                          {"cp_size", int64_t{2}},
                                                          {"cp_rank", int64_t{1}}}));
  EXPECT_TRUE(HasStream(plan, "glm_dsa_cp_query_indices"));
}

PackedBatch Mimos(const PackedBatch::Rows& real, const PackedBatch::Rows& padded) {
  PackedBatch batch(static_cast<int64_t>(real.size()), 8);
  return batch.Real(real).Padded(padded).SetScalar("qkv_format", std::string("thd"));
}

TEST(MimoBorders, EmptyDocumentsAreForOneRankAndDocumentsOfPaddingForAll) {
  Planned(Mimo({}, kPadId), Mimos({{8, 0}}, {{8, 0}}).Cp(1));
  Planned(Mimo({}, kPadId), Mimos({{8, 0}}, {{8, 0}}).Cp(std::nullopt));
  Planned(Mimo({}, kPadId), Mimos({{4, 0}}, {{4, 4}}));
}

TEST(MimoBorders, TheMasksOfMediaTokensAreWhole) {
  const MimoOptions options{.num_chunks = 2, .image_token_id = 7};
  const ShardPlan plan = Planned(Mimo(options, kPadId), Mimos({{8}, {8}}, {{8}, {8}}));
  const StreamPlan mask = StreamOf(plan, "_mimo_global_image_mask");
  EXPECT_EQ(mask.extent, Extent::kWhole);
  EXPECT_EQ(mask.dims, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(mask.value.op, Op::kEquals);
  EXPECT_EQ(mask.value.operand, 7);
  EXPECT_FALSE(HasStream(plan, "_mimo_global_video_mask"));
  EXPECT_EQ(StreamOf(plan, "_mimo_thd_local_indices").dtype, DType::kI64);
}

TEST(MimoBorders, AMaskTakesThePlaceOfAnyEntryOfItsName) {
  const Sharder mimo = Mimo({.image_token_id = 7, .video_token_id = 8}, kPadId);
  PackedBatch batch = Mimos({{8}}, {{8}}).SetScalar("_mimo_global_image_mask", int64_t{1});
  batch.Set(Of("_mimo_global_video_mask", {3}));
  const ShardPlan plan = Planned(mimo, batch);
  for (const ScalarPlan& scalar : plan.scalars) EXPECT_NE(scalar.name, "_mimo_global_image_mask");
  EXPECT_EQ(StreamOf(plan, "_mimo_global_image_mask").value.operand, 7);
  EXPECT_EQ(StreamOf(plan, "_mimo_global_video_mask").value.operand, 8);
}

// Magi, contract 7 --------------------------------------------------------------------------------

// Step 8: pads repeat the last position; D3: slots keep their true column; D4: labels get -100.
TEST(MagiBorders, PadsRepeatTheLastPositionAndKeepTheirColumns) {
  const ShardPlan plan = Planned(Magi({.min_chunks_per_rank = 2}), OneRow(7));  // chunks of two
  EXPECT_EQ(ValuesOf(plan, "position_ids"), (Values{{0, 1, 2, 3, 4, 5, 6, 6}}));
  EXPECT_EQ(plan.chunks[0].partition[0].ToString(), "0+2 4+2");
  EXPECT_EQ(plan.chunks[0].partition[1].ToString(), "2+2 6+2");
  EXPECT_EQ(StreamOf(plan, "labels").fill, (Fill{Fill::Kind::kConstant, Element{~uint64_t{99}}}));
  EXPECT_EQ(StreamOf(plan, "input_ids").fill, (Fill{Fill::Kind::kConstant, Element{0}}));
  EXPECT_EQ(plan.chunks[0].report, (Report{.original_seq_len = 7,
                                           .padded_seq_len = 8,
                                           .indices = Report::Indices::kI64,
                                           .indices_2d = true}));
}

TEST(MagiBorders, ARowThatNeedsNoPaddingReportsItsShape) {
  const Report report = Planned(Magi({}), OneRow(8)).chunks[0].report;
  EXPECT_EQ(report.input_row_shape, (RowShape{1, 8}));
  EXPECT_FALSE(report.original_seq_len.has_value());
}

TEST(MagiBorders, APackedBatchIsOneStreamWithGlobalPositions) {
  PackedBatch batch = PackedBatch(2, 4).Real({{4}, {2, 2}});
  batch.SetScalar("qkv_format", std::string("thd")).Set(Of("pixel_values", {3}, DType::kF32));
  const ShardPlan plan = Planned(Magi({.variant = MagiVariant::kCustom}), batch);
  EXPECT_EQ(ValuesOf(plan, "position_ids"), (Values{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(StreamOf(plan, "input_ids").dims, (std::vector<int64_t>{8}));
  EXPECT_FALSE(HasStream(plan, "pixel_values"));
  EXPECT_EQ(plan.chunks[0].report.input_row_shape, (RowShape{2, 4}));
  EXPECT_FALSE(plan.chunks[0].report.indices_2d);
}

// Contract 7.1: nothing is sharded and no layout reported; prefix_tree is taken out.
TEST(MagiBorders, WhatIsNotShardedStaysAsItIs) {
  PackedBatch batch = PackedBatch(3, 5).SetScalar("prefix_tree", std::string("x"));
  batch.Set(Of("labels", {7}));
  for (const Sharder& sharder :
       {Magi({.variant = MagiVariant::kCustom}),
        Magi({.variant = MagiVariant::kCustom, .domain = MagiDomain::kVlm})}) {
    const ShardPlan plan = Planned(sharder, batch);
    EXPECT_TRUE(plan.chunks.empty());
    EXPECT_EQ(StreamOf(plan, "labels").extent, Extent::kWhole);
    EXPECT_TRUE(ScalarsOf(plan, 0).empty());
  }
  EXPECT_TRUE(Planned(Magi({.domain = MagiDomain::kVlm}), OneRow(5).Cp(1)).chunks.empty());
}

TEST(MagiBorders, APackedBatchForOneRankIsConvertedAlone) {
  PackedBatch batch = OneRow(8).Real({{3, 5}}).SetScalar("qkv_format", std::string("thd"));
  for (std::optional<int64_t> cp_size : {std::optional<int64_t>(), {1}}) {
    const ShardPlan plan =
        Planned(Magi({.variant = MagiVariant::kCustom}), PackedBatch(batch).Cp(cp_size));
    EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 3, 8));
    EXPECT_TRUE(HasStream(plan, "_thd_local_indices"));
    EXPECT_EQ(plan.chunks.at(0).report, Report());
  }
}

}  // namespace
}  // namespace cpshard
